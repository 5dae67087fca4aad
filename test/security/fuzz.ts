/**
 * Inputs drawn from seeds: frames, handshakes, HTTP, tokens, capabilities, certificates' names and configurations. Each
 * is refused in the specified way. `npm run fuzz -- --count N --seed N` runs it for longer; a failure names its seed.
 */
import assert from 'node:assert/strict';
import { createSecretKey } from 'node:crypto';
import { connect } from 'node:net';
import { parseArgs } from 'node:util';
import type { ServerId } from '../../base/ids.ts';
import { Prng } from '../../base/prng.ts';
import { readConfig } from '../../server/config/config.ts';
import { OPTIONS } from '../../server/config/config-options.ts';
import { ConfigurationError } from '../../server/config/configuration-error.ts';
import { Capabilities } from '../../server/security/capabilities.ts';
import { decodeFrame, encodeBatch, type FrameRecord, recordSize } from '../../server/transport/frame.ts';
import { checkIntroduction } from '../../server/transport/handshake.ts';
import {
  CHANNEL_CALL,
  CHANNEL_LEASE,
  CHANNEL_REPLICA,
  CHANNEL_REPLY,
} from '../../server/transport/transport.ts';
import { identityOfUris, urisOfNames } from '../../wire/access.ts';
import { MalformedError } from '../../wire/bytes.ts';
import { formatTokenFile, parseTokenFile, tokenParts } from '../../wire/tokens.ts';
import { FakeCluster } from '../http/fake-services.ts';

const PIECES = [
  ...[
    '',
    '/',
    '//',
    '..',
    '.',
    '%',
    '%2e%2e',
    '%2f',
    '%00',
    '%zz',
    '%c0%af',
    '\\',
    ';',
    '?',
    '#',
    '&',
    '=',
    '*',
    ':',
  ],
  ...[
    'v1',
    'files',
    'main',
    'data',
    '7',
    '-1',
    '9007199254740993',
    '1e9',
    'catalog',
    'info',
    'leases',
    'locks',
    'a',
  ],
  ...[
    'offset',
    'length',
    'bytes=',
    '0-',
    ',',
    '"',
    "'",
    '\t',
    ' ',
    'é',
    '🜁',
    'Infinity',
    'null',
    '[]',
    '{}',
    'true',
  ],
] as const;
const METHODS = ['GET', 'HEAD', 'PUT', 'POST', 'PATCH', 'DELETE', 'OPTIONS', 'BREW', ''] as const;
const HEADERS = [
  ...[
    'range',
    'if-match',
    'if-none-match',
    'if-range',
    'content-length',
    'transfer-encoding',
    'content-type',
    'expect',
  ],
  ...[
    'authorization',
    'leasehold-capability',
    'leasehold-forwarded',
    'leasehold-session',
    'connection',
    'upgrade',
  ],
  ...['host', 'accept', 'content-range', 'accept-encoding', 'content-encoding', 'x-\u00e9'],
] as const;
/** Time for an answer to the last request on a connection, or for the connection's end. */
const SOCKET_MS_MAX = 5_000;

/** The inputs of one target, and what it must not do with them. */
interface Target {
  readonly name: string;
  /** Part of all inputs. */
  readonly share: number;
  run(prng: Prng): void | Promise<void>;
}

/** @returns a text of up to `count` pieces, some of them broken */
function drawText(prng: Prng, count: number): string {
  let text = '';
  for (let left = prng.integer(0, count); left > 0; left--) {
    text += prng.chance(0.8) ? prng.pick(PIECES) : String.fromCharCode(prng.integer(0, 0x2ff));
  }
  return text;
}

function drawBytes(prng: Prng, most: number): Buffer {
  return Buffer.from(Array.from({ length: prng.integer(0, most) }, () => prng.integer(0, 255)));
}

/** Changes, removes, doubles or adds bytes at some places. */
function mutate(prng: Prng, bytes: Buffer): Buffer {
  let changed = Buffer.from(bytes);
  for (let left = prng.integer(1, 4); left > 0; left--) {
    const at = prng.integer(0, changed.length);
    const [head, tail] = [changed.subarray(0, at), changed.subarray(at)];
    switch (prng.integer(0, 3)) {
      case 0:
        if (at < changed.length) changed[at] = prng.integer(0, 255);
        break;
      case 1:
        changed = Buffer.concat([head, tail.subarray(prng.integer(0, 8))]);
        break;
      case 2:
        changed = Buffer.concat([head, drawBytes(prng, 8), tail]);
        break;
      default:
        changed = Buffer.concat([changed, tail]);
    }
  }
  return changed;
}

/** Runs `action`; what it throws has to be of `foreseen`. */
function onlyThrows(foreseen: new (...given: never[]) => Error, action: () => void): void {
  try {
    action();
  } catch (error) {
    if (!(error instanceof foreseen)) throw error;
  }
}

function frames(prng: Prng): void {
  const records = Array.from({ length: prng.integer(0, 4) }, (): FrameRecord => {
    const payload = drawBytes(prng, 40);
    switch (prng.integer(0, 2)) {
      case 0:
        return { channel: prng.pick([CHANNEL_LEASE, CHANNEL_REPLICA]), payload };
      case 1:
        return { channel: CHANNEL_CALL, id: prng.nextUint32(), method: 'ask', payload };
      default:
        return { channel: CHANNEL_REPLY, id: prng.nextUint32(), failed: prng.chance(0.5), payload };
    }
  });
  const size = records.reduce((sum, record) => sum + recordSize(record), 0);
  const bytes = mutate(prng, encodeBatch(records, size));
  const cut = prng.integer(0, bytes.length);
  onlyThrows(MalformedError, () => decodeFrame([bytes.subarray(0, cut), bytes.subarray(cut)]));
}

function handshakes(prng: Prng): void {
  const own = { server: 's1' as ServerId, incarnation: 7, cluster: 'default', paramsHash: 'p' };
  const names = ['wire', 'cluster', 'server', 'incarnation', 'params', 'peer'];
  const good: Record<string, string> = {
    wire: '2',
    cluster: 'default',
    server: 's2',
    incarnation: '9',
    params: 'p',
  };
  const headers = Object.fromEntries(
    names.flatMap((name) => {
      const value = prng.chance(0.7) ? good[name] : drawText(prng, 3);
      return value === undefined ? [] : [[`leasehold-${name}`, value]];
    }),
  );
  const greeting = checkIntroduction(headers, own, (server) => server === 's2');
  if (greeting.kind === 'welcome') assert.equal(greeting.hello.server, 's2');
}

const KEY = Buffer.alloc(32, 7);
const capabilities = new Capabilities(() => KEYS, Date.now);
const KEYS = [createSecretKey(KEY)];

function credentials(prng: Prng): void {
  const good = capabilities.issue({ file: 7, volume: 'main', mode: 'read', to: 'me' });
  const text = mutate(prng, Buffer.from(good)).toString('latin1');
  const verified = capabilities.verify(text);
  // Base64 has more than one text for the same bytes; but nothing else is ever allowed.
  if (verified !== null) assert.deepEqual([verified.file, verified.mode, verified.to], [7, 'read', 'me']);
  const token = `lh_0123456789ab_${'A'.repeat(43)}`;
  const changed = mutate(prng, Buffer.from(token)).toString('latin1');
  const parts = tokenParts(changed);
  if (parts !== null) assert.match(parts.secret, /^[A-Za-z0-9_-]{43}$/);
  const file = formatTokenFile({ keys: [KEY.toString('base64url')], tokens: [], revoked: [] });
  onlyThrows(Error, () => parseTokenFile(mutate(prng, Buffer.from(file)).toString()));
  const names = `URI:urn:leasehold:server:s1, DNS:s1, DNS:"a, URI:urn:leasehold:server:s2"`;
  const identity = identityOfUris(urisOfNames(mutate(prng, Buffer.from(names)).toString('latin1')));
  if (identity?.kind === 'client') assert.fail('A server never becomes a client');
}

function configurations(prng: Prng): void {
  const good = ['--id', 's1', '--peer', 's1=127.0.0.1:7401', '--data', '/d'];
  const flags = Array.from({ length: prng.integer(0, 3) }, () => {
    const { name } = prng.pick(OPTIONS);
    return prng.chance(0.8) ? [`--${name}=${drawText(prng, 4)}`] : [drawText(prng, 3), drawText(prng, 2)];
  });
  const env = prng.chance(0.3) ? { [`LEASEHOLD_${drawText(prng, 2)}`]: drawText(prng, 2) } : {};
  const toml = prng.chance(0.5) ? drawText(prng, 8) : `${prng.pick(OPTIONS).name} = ${drawText(prng, 3)}`;
  onlyThrows(ConfigurationError, () => readConfig([...good, ...flags.flat()], env, () => toml));
}

/** Storing files needs a real connection, which an injected request does not have: `garbage` sends those. */
const BODIED = ['PUT', 'POST', 'PATCH'] as const;

/** HTTP against all routes of a server; some requests have a random body. */
async function requests(prng: Prng, cluster: FakeCluster): Promise<void> {
  const { app } = cluster.server(0);
  const headers = Object.fromEntries(
    Array.from({ length: prng.integer(0, 4) }, () => [
      prng.pick(HEADERS),
      drawText(prng, 4).replaceAll(/[^ -~]/g, ''),
    ]),
  );
  const { 'content-length': _, 'transfer-encoding': __, expect: ___, upgrade: ____, ...sendable } = headers;
  const path = `/${Array.from({ length: prng.integer(0, 6) }, () => drawText(prng, 2)).join('/')}`;
  const url = prng.chance(0.6)
    ? `/v1/${prng.pick(['files', 'info', 'data', 'catalog', 'leases'])}${path}`
    : path;
  const method = prng.pick([
    'GET',
    'HEAD',
    'DELETE',
    'OPTIONS',
    ...(url.startsWith('/v1/files') ? [] : BODIED),
  ] as const);
  const body = method === 'GET' || method === 'HEAD' ? {} : { payload: drawText(prng, 6) };
  // A target as it can arrive on the wire, without spaces and characters beyond Latin-1.
  const target = Buffer.from(url)
    .toString('latin1')
    .replaceAll(/[^!-~\u00a1-\u00ff]/g, '');
  // Sent as it is instead: the library that injects requests needs a valid URL.
  if (!URL.canParse(target, 'http://localhost')) return garbage(prng, cluster);
  const answer = await app.inject({ method, url: target, headers: sendable, ...body });
  assert.ok(
    answer.statusCode < 500 || answer.statusCode === 503,
    `${method} ${target}: ${answer.statusCode} ${answer.body}`,
  );
  for (const value of Object.values(answer.headers).flat()) assert.doesNotMatch(String(value), /[\r\n]/);
}

/** Bytes on the port itself: the server answers, or closes the connection. */
async function garbage(prng: Prng, cluster: FakeCluster): Promise<void> {
  const { port, hostname } = new URL(cluster.server(0).url);
  const head = `${prng.pick(METHODS)} ${drawText(prng, 6)} HTTP/1.1\r\nhost: localhost\r\n`;
  const lines = Array.from(
    { length: prng.integer(0, 4) },
    () => `${prng.pick(HEADERS)}: ${drawText(prng, 4)}\r\n`,
  );
  const http = Buffer.from(`${head}${lines.join('')}\r\n`);
  const bytes = prng.chance(0.3) ? drawBytes(prng, 200) : prng.chance(0.5) ? mutate(prng, http) : http;
  await new Promise<void>((resolve, reject) => {
    const socket = connect(Number(port), hostname, () => socket.end(bytes));
    socket.setTimeout(SOCKET_MS_MAX, () => {
      socket.destroy();
      reject(new Error(`No answer and no end: ${bytes.toString('latin1')}`));
    });
    socket.on('error', () => resolve());
    socket.on('close', () => resolve());
    socket.resume();
  });
}

function drawTarget(prng: Prng, targets: readonly Target[]): Target {
  let left = prng.next();
  for (const target of targets) {
    left -= target.share;
    if (left < 0) return target;
  }
  return targets.at(-1) as Target;
}

export interface FuzzResult {
  readonly inputs: number;
  readonly byTarget: Readonly<Record<string, number>>;
}

/**
 * @param seed of the first input; the next has the next one
 * @throws Error that names the seed and the target at the first input with a forbidden effect
 */
export async function fuzz(seed: number, count: number): Promise<FuzzResult> {
  const cluster = await FakeCluster.start({ servers: 1, replicas: 1 });
  const targets: readonly Target[] = [
    { name: 'frames', share: 0.3, run: frames },
    { name: 'handshakes', share: 0.1, run: handshakes },
    { name: 'credentials', share: 0.2, run: credentials },
    { name: 'configurations', share: 0.15, run: configurations },
    { name: 'requests', share: 0.2, run: (prng) => requests(prng, cluster) },
    { name: 'garbage', share: 0.05, run: (prng) => garbage(prng, cluster) },
  ];
  const byTarget: Record<string, number> = {};
  try {
    for (let input = 0; input < count; input++) {
      const prng = new Prng(seed + input);
      const target = drawTarget(prng, targets);
      try {
        await target.run(prng);
      } catch (cause) {
        throw new Error(`Seed ${seed + input} broke ${target.name}: ${String(cause)}`, { cause });
      }
      byTarget[target.name] = (byTarget[target.name] ?? 0) + 1;
    }
    const alive = await fetch(`${cluster.server(0).url}/livez`);
    assert.equal(await alive.text(), 'alive\n');
    assert.deepEqual(cluster.logged, [], 'No unexpected error was logged');
  } finally {
    await cluster.close();
  }
  return { inputs: count, byTarget };
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      count: { type: 'string', default: '1000000' },
      seed: { type: 'string', default: `${Date.now()}` },
    },
  });
  const result = await fuzz(Number(values.seed), Number(values.count));
  process.stdout.write(`${JSON.stringify({ seed: Number(values.seed), ...result })}\n`);
}
