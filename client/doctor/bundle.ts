import { open, readFile, writeFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import { systemWorld } from '../../world/system-world.ts';
import { BLOCK_BYTES, headersOf, paddingOf } from '../archive/pax.ts';
import { run } from '../mounts/run-program.ts';
import { Access } from '../transport/access.ts';
import { DoctorClient } from './doctor-client.ts';
import type { Finding } from './finding.ts';
import { redacted } from './redact.ts';

const LOG_BYTES_MAX = 4 * 1024 * 1024;
const JOURNAL_LINES = 20_000;
const ENVIRONMENT = /^LEASEHOLD_/;
const MACHINE_FILES = [
  '/etc/os-release',
  '/proc/version',
  '/proc/meminfo',
  '/proc/loadavg',
  '/proc/pressure/io',
];
const SERVER_PAGES = [
  ['/v1/status/self', 'status.json'],
  ['/v1/servers', 'servers.json'],
  ['/v1/scrub', 'scrub.json'],
  ['/readyz?verbose', 'readyz.txt'],
  ['/metrics', 'metrics.txt'],
] as const;

export interface BundleOptions {
  readonly version: string;
  readonly findings: readonly Finding[];
  readonly servers: readonly string[];
  readonly access?: Access;
  readonly configs: readonly string[];
  readonly logs: readonly string[];
}

interface Piece {
  readonly path: string;
  readonly text: string;
}

/**
 * Writes what helps with a diagnosis into one compressed archive: the doctor's findings, reports of the servers,
 * configuration, environment and logs without secrets, the machine. A missing item is replaced by the reason. @returns
 * the names in it
 */
export async function writeBundle(file: string, options: BundleOptions): Promise<string[]> {
  const { version, findings, servers, configs, logs, access = Access.NONE } = options;
  const client = new DoctorClient(access);
  const about = { version, node: process.version, platform: `${process.platform} ${process.arch}`, servers };
  const environment = Object.entries(process.env)
    .filter(([name]) => ENVIRONMENT.test(name))
    .map(([name, value]) => `${name}=${value}\n`);
  const pieces: Piece[] = [
    {
      path: 'about.json',
      text: `${JSON.stringify({ ...about, at: new Date(systemWorld.wallMs()).toISOString() }, null, 2)}\n`,
    },
    { path: 'findings.json', text: `${JSON.stringify(findings, null, 2)}\n` },
    { path: 'environment.txt', text: environment.join('') },
    ...(await Promise.all(servers.flatMap((server) => piecesOf(server, client))).finally(() =>
      client.close(),
    )),
    ...(await Promise.all(
      configs.map((path) => pieceOf(`configuration/${basename(path)}`, () => readFile(path, 'utf8'))),
    )),
    ...(await Promise.all(logs.map((path) => pieceOf(`logs/${basename(path)}`, () => endOf(path))))),
    ...(await Promise.all(
      MACHINE_FILES.map((path) => pieceOf(`machine/${basename(path)}`, () => readFile(path, 'utf8'))),
    )),
    await pieceOf('machine/mounts', async () => {
      const mounts = await readFile('/proc/self/mounts', 'utf8');
      return `${mounts
        .split('\n')
        .filter((line) => / fuse/.test(line))
        .join('\n')}\n`;
    }),
    ...(await journal()),
  ];
  const archive = pieces.flatMap(({ path, text }) => memberOf(path, redacted(text)));
  const bytes = await promisify(gzip)(Buffer.concat([...archive, Buffer.alloc(2 * BLOCK_BYTES)]));
  await writeFile(file, bytes, { mode: 0o600 });
  return pieces.map(({ path }) => path);
}

function piecesOf(server: string, client: DoctorClient): Promise<Piece>[] {
  const name = new URL(server).host.replaceAll(':', '-');
  const pieces = SERVER_PAGES.map(([path, as]) =>
    pieceOf(`servers/${name}/${as}`, async () => {
      const response = await client.get(`${server}${path}`);
      return response.body.text();
    }),
  );
  return pieces;
}

/** @returns the log of the servers in systemd's journal, if it runs them */
async function journal(): Promise<Piece[]> {
  const argv = ['--no-pager', '--output=cat', `--lines=${JOURNAL_LINES}`, '--unit=leasehold-*'];
  const result = await run('journalctl', argv);
  return result.kind === 'missing' ? [] : [{ path: 'logs/journal', text: result.output }];
}

async function pieceOf(path: string, read: () => Promise<string>): Promise<Piece> {
  try {
    return { path, text: await read() };
  } catch (error) {
    return { path: `${path}.missing`, text: `${error instanceof Error ? error.message : String(error)}\n` };
  }
}

async function endOf(path: string): Promise<string> {
  const file = await open(path, 'r');
  try {
    const { size } = await file.stat();
    const from = Math.max(0, size - LOG_BYTES_MAX);
    const bytes = Buffer.alloc(size - from);
    const { bytesRead } = await file.read(bytes, 0, bytes.length, from);
    return bytes.subarray(0, bytesRead).toString('utf8');
  } finally {
    await file.close();
  }
}

function memberOf(path: string, text: string): Uint8Array[] {
  const data = Buffer.from(text);
  const header = headersOf({
    kind: 'file',
    path: `leasehold-bundle/${path}`,
    mode: 0o600,
    uid: 0,
    gid: 0,
    modifiedNs: `${systemWorld.wallMs()}000000`,
    target: '',
    device: 0,
    dataBytes: data.length,
    xattrs: new Map(),
    sparseBytes: null,
  });
  return [header, data, Buffer.alloc(paddingOf(data.length))];
}
