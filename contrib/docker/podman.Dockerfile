# Podman and Buildah without root, on veneer: to build images and run containers in a container, as CI jobs do.
#   docker build -f contrib/docker/build.Dockerfile -t veneer .
#   docker build -f contrib/docker/podman.Dockerfile -t veneer-podman .
# README.md says how it is run.
FROM veneer AS veneer

FROM debian:12-slim
RUN apt-get update && \
    apt-get install -y --no-install-recommends podman buildah crun uidmap libcap2-bin slirp4netns fuse3 ca-certificates \
        busybox-static libarchive13 libjansson4 libmicrohttpd12 liburing2 libxxhash0 && \
    rm -rf /var/lib/apt/lists/*
COPY --from=veneer /usr/local/bin/veneer /usr/local/bin/veneer
# With capabilities of the files they work in a container that has no CAP_SYS_ADMIN; set-id they do not.
RUN chmod u-s /usr/bin/newuidmap /usr/bin/newgidmap && \
    setcap cap_setuid+ep /usr/bin/newuidmap && setcap cap_setgid+ep /usr/bin/newgidmap
# All ids of the container but root's and the user's own.
RUN useradd -m -u 1000 -s /bin/sh user && \
    echo user:1:999 >/etc/subuid && echo user:1001:64535 >>/etc/subuid && cp /etc/subuid /etc/subgid
COPY contrib/docker/storage.conf contrib/docker/containers.conf /home/user/.config/containers/
# The store is on a volume, as an upper directory on another overlay is slow at best.
RUN mkdir -p /home/user/.local/share/containers && chown -R user:user /home/user
VOLUME /home/user/.local/share/containers
USER user
WORKDIR /home/user
ENV HOME=/home/user XDG_RUNTIME_DIR=/tmp/run-user
CMD ["/bin/sh"]
