import assert from 'node:assert/strict';
import childProcess from 'node:child_process';
import crypto from 'node:crypto';
import dgram from 'node:dgram';
import dns from 'node:dns';
import fs from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import net from 'node:net';
import { afterEach, test } from 'node:test';
import tls from 'node:tls';
import { Worker } from 'node:worker_threads';
import zlib from 'node:zlib';
import Database from 'better-sqlite3';
import { currentProcess, guardWith } from './guard.ts';
import { VirtualTime } from './virtual-time.ts';

afterEach(() => guardWith(null));

/** What a simulated process must not use, each with one call of it. */
const REAL: Readonly<Record<string, () => unknown>> = {
  'a socket': () => net.connect(1),
  'a socket by its class': () => new net.Socket().connect(1),
  'a listener': () => net.createServer().listen(0),
  'a listener of HTTP': () => http.createServer().listen(0),
  'a socket of TLS': () => tls.connect(1),
  'a request': () => http.get('http://127.0.0.1:1'),
  'a request of TLS': () => https.get('https://127.0.0.1:1'),
  'a datagram': () => dgram.createSocket('udp4'),
  fetch: () => fetch('http://127.0.0.1:1'),
  'a name server': () => dns.lookup('localhost', () => undefined),
  'a name server by a promise': () => dns.promises.lookup('localhost'),
  'a child process': () => childProcess.spawn('true'),
  'a child process at once': () => childProcess.execFileSync('true'),
  'a thread': () => new Worker('', { eval: true }),
  'the pool of zlib': () => zlib.gzip('', () => undefined),
  'a stream of zlib': () => zlib.createBrotliCompress(),
  'the pool of crypto': () => crypto.scrypt('', '', 8, () => undefined),
  'the pool of crypto by its other face': () => crypto.subtle.digest('SHA-256', new Uint8Array(1)),
  'a file at once': () => fs.readFileSync('/etc/passwd'),
  'a file by a callback': () => fs.stat('/etc/passwd', () => undefined),
  'a file by a promise': () => fs.promises.readFile('/etc/passwd'),
  'a stream of a file': () => fs.createReadStream('/etc/passwd'),
  'a watch of a file': () => fs.watch('/tmp'),
  'the facts of processes': () => fs.readdirSync('/proc/self/fd'),
  'a database': () => new Database('/dev/shm/leasehold-none.db').exec('SELECT 1'),
};

for (const [what, reach] of Object.entries(REAL)) {
  test(`a simulated process that uses ${what} ends the run with a stack`, async () => {
    const time = new VirtualTime(1);
    guardWith(time);
    const process = time.process('p');
    time.after(0, process, () => {
      assert.equal(currentProcess(), process);
      Promise.resolve()
        .then(reach)
        .catch(() => undefined);
    });
    await assert.rejects(time.run(1_000), (error: Error) => {
      assert.match(error.message, /^p reached for /);
      assert.match(error.stack ?? '', /guard\.test\.ts/);
      return true;
    });
  });
}
