# Runs the tests in a container; it mounts, and so needs privileges and a real file system.
#   docker build -f contrib/docker/test.Dockerfile -t veneer-test .
#   docker run --rm --privileged -v /var/tmp veneer-test
#   docker run --rm --privileged -v /var/tmp veneer-test unit
FROM debian:12
COPY contrib/setup.sh /src/contrib/setup.sh
COPY contrib/lint/requirements.txt /src/contrib/lint/requirements.txt
RUN /src/contrib/setup.sh --tests
COPY . /src
WORKDIR /src
RUN rm -rf build*
ENTRYPOINT ["contrib/test.sh"]
