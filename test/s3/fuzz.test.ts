/**
 * Goal: no head, body, document, form or stored attribute of S3 ends a server, or gets an answer that S3 does not know.
 * Method: 8,000 inputs of one seed for the parsers, 300 requests on a server's port; `SEED=17` plays another one.
 */
import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { test } from 'node:test';
import type { FastifyRequest } from 'fastify';
import { Prng } from '../../base/prng.ts';
import { authenticate } from '../../server/s3/authentication.ts';
import { claimedChecksum } from '../../server/s3/checksums.ts';
import { decodeChunks } from '../../server/s3/chunked-body.ts';
import { keyPath } from '../../server/s3/keys.ts';
import {
  computedOf,
  decodeRecord,
  descriptionOf,
  encodeRecord,
  isHeader,
} from '../../server/s3/object-record.ts';
import { checkPolicy } from '../../server/s3/post-object.ts';
import { S3Error } from '../../server/s3/s3-error.ts';
import { tagsOfHeader, tagsOfXml } from '../../server/s3/tags.ts';
import { parseTarget } from '../../server/s3/target.ts';
import { xmlParse } from '../../server/s3/xml.ts';
import type { TokenStore } from '../../server/security/token-file.ts';
import { startS3 } from './s3-server.ts';
import { chunkedBody, chunkSigner, percentEncode } from './sign.ts';

const SEED = Number(process.env.SEED ?? 1);
const PARSED = 8_000;
const SENT = 300;
const SOCKET_MS_MAX = 20_000;
const NOW_MS = Date.parse('2026-11-30T12:00:00Z');

const PIECES: readonly string[] = [
  ...[
    '',
    '/',
    '//',
    '.',
    '..',
    '%',
    '%2f',
    '%00',
    '%ff',
    '%zz',
    '+',
    ' ',
    '?',
    '&',
    '=',
    ';',
    ',',
    ':',
    '"',
    '\\',
  ],
  ...[
    'bucket',
    'a',
    '.s3-uploads',
    'tagging',
    'acl',
    'attributes',
    'uploads',
    'uploadId',
    'partNumber',
    'versionId',
  ],
  ...[
    'X-Amz-Algorithm',
    'AWS4-HMAC-SHA256',
    'X-Amz-Signature',
    'X-Amz-Expires',
    '20261130T120000Z',
    'null',
    '-1',
  ],
  ...[
    'é',
    '世',
    '\u{1f600}',
    '\0',
    '\r\n',
    '\t',
    '\u007f',
    '__proto__',
    '1e9',
    '999999999999999999',
    '<a>',
    '&a;',
  ],
  ...['bytes=', '0-', 'chunk-signature', '*', 'W/', '[]', '{}', '$key', 'starts-with'],
];

function drawText(prng: Prng, most: number): string {
  return Array.from({ length: prng.integer(0, most) }, () => prng.pick(PIECES)).join('');
}

/** Changes, removes, doubles or adds bytes at some places. */
function mutate(prng: Prng, bytes: Buffer): Buffer {
  let changed = Buffer.from(bytes);
  for (let left = prng.integer(1, 3); left > 0; left--) {
    const at = prng.integer(0, changed.length);
    const [before, after] = [changed.subarray(0, at), changed.subarray(at)];
    const kind = prng.integer(0, 3);
    const added = Buffer.from(
      kind === 0 ? drawText(prng, 2) : String.fromCharCode(prng.integer(0, 255)),
      'latin1',
    );
    changed = Buffer.concat(
      kind === 1 ? [before, after.subarray(1)] : kind === 2 ? [before, after, after] : [before, added, after],
    );
  }
  return changed;
}

/** A refusal is an error of S3 with a status below 500, or `NotImplemented`. */
async function onlyRefuses(work: () => unknown): Promise<void> {
  try {
    await work();
  } catch (error) {
    const isRefusal = error instanceof S3Error && (error.status < 500 || error.status === 501);
    if (!isRefusal) throw error;
  }
}

const TOKENS = { s3AccessOf: () => ({ grant: {}, secrets: ['secret'] }) } as unknown as TokenStore;

/** Targets, and signatures in heads. No drawn signature is right. */
async function heads(prng: Prng): Promise<void> {
  const path = `/${drawText(prng, 5)}${prng.chance(0.6) ? `?${drawText(prng, 8)}` : ''}`;
  const authorization = mutate(
    prng,
    Buffer.from(
      `AWS4-HMAC-SHA256 Credential=A/20261130/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=${'0'.repeat(64)}`,
    ),
  ).toString('latin1');
  const headers: Record<string, string> = {
    host: prng.chance(0.5) ? `${drawText(prng, 1)}.s3.test` : 'h',
    'x-amz-date': prng.chance(0.8) ? '20261130T120000Z' : drawText(prng, 2),
    'x-amz-content-sha256': prng.chance(0.8) ? 'UNSIGNED-PAYLOAD' : drawText(prng, 2),
    ...(prng.chance(0.8) ? { authorization } : {}),
  };
  const raw = { rawHeaders: Object.entries(headers).flat(), socket: {} };
  const request = { method: 'GET', originalUrl: path, headers, raw } as unknown as FastifyRequest;
  await onlyRefuses(() => {
    const target = parseTarget(request, ['s3.test']);
    if (target.key !== null) {
      const found = keyPath(target.key);
      if (typeof found !== 'string')
        assert.ok(found.names.every((name) => !['', '.', '..'].includes(name) && !/[/\0]/.test(name)));
    }
    const { principal } = authenticate(request, target, TOKENS, NOW_MS);
    assert.fail(`accepted: ${JSON.stringify(principal)}`);
  });
}

async function* inPieces(prng: Prng, bytes: Buffer): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; ) {
    const size = prng.integer(1, 40);
    yield bytes.subarray(at, at + size);
    at += size;
  }
}

const SCOPE = { amzDate: '20261130T120000Z', region: 'us-east-1', service: 's3' };

/** Bodies in chunks without signatures: never more data than announced. */
async function chunks(prng: Prng): Promise<void> {
  const data = Buffer.from('abcdefgh'.repeat(prng.integer(0, 20)));
  const cut = prng.integer(0, data.length);
  const signer = prng.chance(0.3) ? chunkSigner('secret', SCOPE, '0'.repeat(64)) : null;
  const parts = [data.subarray(0, cut), data.subarray(cut)].filter((part) => part.length > 0);
  const bytes = mutate(prng, chunkedBody(parts, signer, [['x-amz-checksum-crc32', 'AAAAAA==']]));
  let received = 0;
  await onlyRefuses(async () => {
    const { body } = decodeChunks(inPieces(prng, bytes), null, data.length);
    for await (const part of body) received += part.length;
    assert.equal(received, data.length);
  });
  assert.ok(received <= data.length);
}

const DOCUMENT =
  '<Tagging xmlns="a"><TagSet><Tag><Key>k</Key><Value>v &amp; <![CDATA[w]]></Value></Tag></TagSet></Tagging>';

async function documents(prng: Prng): Promise<void> {
  await onlyRefuses(() => tagsOfXml(xmlParse(mutate(prng, Buffer.from(DOCUMENT)), 'Tagging')));
  await onlyRefuses(() => tagsOfHeader(drawText(prng, 8)));
}

const POLICY = JSON.stringify({
  expiration: '2026-12-01T00:00:00Z',
  conditions: [{ bucket: 'b' }, ['starts-with', '$key', 'a'], ['content-length-range', 0, 9]],
});

async function policies(prng: Prng): Promise<void> {
  const text = mutate(prng, Buffer.from(POLICY));
  const base64 = prng.chance(0.8) ? text.toString('base64') : drawText(prng, 4);
  const fields = { bucket: 'b', key: 'a', [drawText(prng, 1)]: drawText(prng, 1) };
  await onlyRefuses(() => {
    const { lengthMin, lengthMax } = checkPolicy(base64, fields, NOW_MS);
    assert.ok(lengthMin >= 0 && lengthMax >= lengthMin);
  });
}

const RECORD = {
  of: [1, 2, 3],
  computed: {
    etag: 'a'.repeat(32),
    checksum: { algorithm: 'CRC32', value: 'AAAAAA==', type: 'FULL_OBJECT' },
    parts: [[1, 2]],
  },
  headers: { 'content-type': 'a/b' },
  meta: { a: 'b' },
  tags: { a: 'b' },
};

/** What the user of a mount wrote into an attribute becomes no header that cannot be sent. */
async function records(prng: Prng): Promise<void> {
  const bytes = mutate(prng, Buffer.from(encodeRecord(RECORD), 'base64'));
  const record = decodeRecord(bytes.toString('base64'));
  for (const [name, value] of Object.entries({ ...record.headers, ...record.meta }))
    assert.ok(isHeader(name, value));
  computedOf(record, { inode: 1, contents: { epoch: 2, seq: 3 } });
  const headers = Object.fromEntries([
    [`x-amz-meta-${drawText(prng, 2)}`, drawText(prng, 3)],
    ['content-type', drawText(prng, 2)],
    ['x-amz-checksum-crc32', drawText(prng, 2)],
  ]);
  await onlyRefuses(() => descriptionOf(headers));
  await onlyRefuses(() => claimedChecksum(headers));
}

const TARGETS = { heads, chunks, documents, policies, records };

test(`${PARSED} inputs of parsers are refused as S3 knows it (SEED=${SEED})`, async () => {
  const names = Object.keys(TARGETS) as (keyof typeof TARGETS)[];
  for (let input = 0; input < PARSED; input++) {
    const prng = new Prng(SEED + input);
    const name = prng.pick(names);
    await TARGETS[name](prng).catch((cause: unknown) => {
      throw new Error(`Seed ${SEED + input} broke ${name}: ${String(cause)}`, { cause });
    });
  }
});

const METHODS = ['GET', 'HEAD', 'PUT', 'POST', 'DELETE', 'OPTIONS', 'PATCH'] as const;
const HEADERS = [
  ...[
    'range',
    'if-match',
    'if-none-match',
    'if-range',
    'if-modified-since',
    'content-type',
    'content-md5',
    'expect',
  ],
  ...[
    'x-amz-copy-source',
    'x-amz-content-sha256',
    'x-amz-decoded-content-length',
    'x-amz-trailer',
    'x-amz-tagging',
  ],
  ...[
    'x-amz-checksum-crc32',
    'x-amz-object-attributes',
    'x-amz-max-parts',
    'x-amz-acl',
    'x-amz-meta-a',
    'origin',
  ],
  ...[
    'x-amz-if-match-size',
    'x-amz-if-match-last-modified-time',
    'access-control-request-method',
    'authorization',
  ],
] as const;

/** A request whose head may mean anything; its end is the end of the connection. */
function drawRequest(prng: Prng): Buffer {
  const keys = Array.from({ length: prng.integer(0, 3) }, () => drawText(prng, 2)).join('/');
  const encode = prng.chance(0.7) ? percentEncode : (text: string) => text.replaceAll(/[\0\r\n\t ]/g, '');
  const query = prng.chance(0.5) ? `?${encode(prng.pick(PIECES))}=${encode(prng.pick(PIECES))}` : '';
  const body = Buffer.from(prng.chance(0.5) ? drawText(prng, 6) : DOCUMENT);
  const lines = Array.from({ length: prng.integer(0, 4) }, () => {
    const value = prng.chance(0.3) ? 'STREAMING-UNSIGNED-PAYLOAD-TRAILER' : drawText(prng, 3);
    return `${prng.pick(HEADERS)}: ${value.replaceAll(/[\0\r\n\u007f]/g, '')}\r\n`;
  });
  const target = `/bucket${prng.chance(0.8) ? '/' : ''}${encode(keys)}${query}`;
  const head = `${prng.pick(METHODS)} ${target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n`;
  return Buffer.concat([Buffer.from(`${head}content-length: ${body.length}\r\n${lines.join('')}\r\n`), body]);
}

function answerOf(port: number, bytes: Buffer): Promise<string> {
  return new Promise((resolve, reject) => {
    let received = '';
    const socket = connect(port, '127.0.0.1', () => socket.write(bytes));
    socket.setTimeout(SOCKET_MS_MAX, () => socket.destroy(new Error('No answer and no end')));
    socket.on('data', (part) => {
      received += part.toString('latin1');
    });
    socket.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ECONNRESET' || error.code === 'EPIPE') resolve(received);
      else reject(error);
    });
    socket.on('close', () => resolve(received));
  });
}

test(`${SENT} requests are answered (SEED=${SEED})`, async () => {
  const { server, port } = await startS3();
  await fetch(`http://127.0.0.1:${port}/bucket`, { method: 'PUT' });
  const play = async (input: number): Promise<void> => {
    const bytes = drawRequest(new Prng(SEED + input));
    const answer = await answerOf(port, bytes);
    const [, status = ''] =
      /^HTTP\/1\.1 (\d{3})/.exec(answer.replace(/^HTTP\/1\.1 100 .*?\r\n\r\n/s, '')) ?? [];
    assert.match(
      status,
      /^(?:[234]\d\d|501)$/,
      `Seed ${SEED + input}: ${JSON.stringify(bytes.toString())}\n${answer}`,
    );
  };
  for (let input = 0; input < SENT; input += 10)
    await Promise.all(Array.from({ length: 10 }, (_, index) => play(input + index)));
  assert.equal(await server.request('/livez'), 'alive\n');
});
