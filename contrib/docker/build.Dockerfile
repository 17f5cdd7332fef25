# Builds veneer from the tree and keeps only the program.
#   docker build -f contrib/docker/build.Dockerfile -t veneer .
#   docker run --rm veneer --version
FROM debian:12 AS build
COPY contrib/setup.sh /src/contrib/setup.sh
RUN /src/contrib/setup.sh
COPY . /src
RUN cd /src && rm -rf build* && meson setup build --buildtype=release -Db_lto=true && ninja -C build

FROM debian:12-slim
RUN apt-get update && \
    apt-get install -y --no-install-recommends fuse3 libarchive13 libjansson4 libmicrohttpd12 \
        liburing2 libxxhash0 && \
    rm -rf /var/lib/apt/lists/*
COPY --from=build /src/build/veneer /usr/local/bin/veneer
RUN ln -s veneer /usr/local/bin/fuse-overlayfs
ENTRYPOINT ["veneer"]
