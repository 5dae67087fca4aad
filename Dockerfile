FROM node:24-bookworm-slim

# fuse3 is for `leasehold mount` in a container, curl for the health check of servers.
RUN apt-get update \
  && apt-get install -y --no-install-recommends curl fuse3 \
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

# Often, so that what depends on a server begins soon; patient, because a busy machine is no reason to call a server unhealthy.
HEALTHCHECK --interval=5s --timeout=10s --start-period=60s --retries=6 \
  CMD ["sh", "/opt/leasehold/packaging/container/health.sh"]

# Node is the process that gets the signals: no shell, no npm in between.
ENTRYPOINT ["node", "bin/leasehold.js"]
CMD ["server"]
