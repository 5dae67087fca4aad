// The health check of the image: exit code 0 where the server in this container is alive. Alive, not ready: without a
// majority a server is in good health and waits.
import { readFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';

const TIMEOUT_MS = 2_500;
const { LEASEHOLD_LISTEN = '', LEASEHOLD_TLS_CA } = process.env;
const where = {
  host: '127.0.0.1',
  port: Number(LEASEHOLD_LISTEN.split(':').at(-1)),
  path: '/livez',
  signal: AbortSignal.timeout(TIMEOUT_MS),
};
const request =
  LEASEHOLD_TLS_CA === undefined
    ? http.get(where)
    : https.get({ ...where, ca: readFileSync(LEASEHOLD_TLS_CA) });
request.on('response', (answer) => process.exit(answer.statusCode === 200 ? 0 : 1));
request.on('error', () => process.exit(1));
