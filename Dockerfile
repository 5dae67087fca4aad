FROM node:24-bookworm-slim

# For `leasehold mount` in a container; the servers do not need it.
RUN apt-get update \
  && apt-get install -y --no-install-recommends fuse3 \
  && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/leasehold

# .npmrc belongs to the installation: it keeps install scripts, and with them the need of a compiler, out.
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev --omit=optional && npm cache clean --force

COPY . .

# A named volume takes over the owner of the folder that it covers: these are what docker-compose.yml covers.
RUN mkdir -p /data /credentials/authority /credentials/s1 /credentials/s2 /credentials/s3 /credentials/admin /credentials/writer \
  && chown -R node:node /data /credentials \
  && ln -s /opt/leasehold/bin/leasehold.js /usr/local/bin/leasehold
USER node
VOLUME /data
EXPOSE 7401

ENV LEASEHOLD_DATA=/data \
    MALLOC_ARENA_MAX=2 \
    LEASEHOLD_LISTEN=0.0.0.0:7401

HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=3 \
  CMD ["node", "/opt/leasehold/packaging/container/health.js"]

# Node is the process that gets the signals: no shell, no npm in between.
ENTRYPOINT ["node", "bin/leasehold.js"]
CMD ["server"]
