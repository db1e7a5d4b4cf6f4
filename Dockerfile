# A small image with the command: `docker build -t tandem .`, then for example
#
#   docker run --rm -v "$PWD:/data" --user "$(id -u):$(id -g)" tandem train shapes --epochs 5 --workspace run
#   docker run --rm -v "$PWD:/data:ro" -p 8000:8000 tandem serve --weights run/model_best.safetensors --host 0.0.0.0 --port 8000
FROM debian:trixie-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends make
WORKDIR /src
COPY . .
RUN make setup && make deb

FROM debian:trixie-slim
COPY --from=build /src/build/deb/packages/tandem_*.deb /tmp/
RUN apt-get update && apt-get install -y --no-install-recommends /tmp/tandem_*.deb && \
    rm -rf /tmp/tandem_*.deb /var/lib/apt/lists/* && useradd --system --no-create-home tandem
USER tandem
ENV XDG_CACHE_HOME=/tmp/cache
WORKDIR /data
EXPOSE 8000
ENTRYPOINT ["tandem"]
CMD ["help"]
