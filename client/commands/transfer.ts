import { createReadStream, type Stats } from 'node:fs';
import { type FileHandle, open, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Command } from 'commander';
import { ServiceError } from '../../base/errors.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import type { ClusterClient, ResolveOptions } from '../cluster/cluster-client.ts';
import { located } from '../cluster/location.ts';
import {
  baseName,
  joinPath,
  looksRemote,
  parseRemotePath,
  type RemotePath,
  type RemotePlace,
} from '../cluster/remote-path.ts';
import {
  type CommandFailure,
  generalFailure,
  isSystemError,
  notFoundFailure,
  preconditionFailure,
  usageFailure,
} from '../terminal/failure.ts';
import { Progress, printJson } from '../terminal/output.ts';
import { writeFileAtomically } from '../transfer/atomic-file.ts';
import type { Download } from '../transfer/download.ts';
import { downloadFile } from '../transfer/download.ts';
import { uploadFile } from '../transfer/upload.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { clusterCommand, withClient } from './cluster-command.ts';
import { getDirectory, putDirectory } from './transfer-tree.ts';

const GET_ATTEMPTS_MAX = 3;
const READ_BYTES = 1024 * 1024;

interface TransferOptions {
  readonly json?: true;
  readonly replace?: boolean;
  readonly recursive?: true;
}

export function addTransferCommands(program: Command): void {
  clusterCommand(program, 'put', 'upload a file atomically and durably, or a directory')
    .argument('<local>', 'file to read, or - for standard input')
    .argument('<target>', 'VOLUME:/path; with a / at the end the file keeps its name in that directory')
    .option(
      '-r, --recursive',
      'transfer a directory with all that is in it; run the same command again to resume',
    )
    .option('--no-replace', 'fail if the path exists')
    .option('--json', 'print what was stored as JSON')
    .run((client, call, local: string, target: string, options: TransferOptions) =>
      options.recursive
        ? putDirectory(client, local, target, options, call)
        : put(client, local, target, options, call),
    );

  clusterCommand(program, 'get')
    .description('download a file or a directory; each local file appears when it is complete')
    .argument('<source>', 'VOLUME:/path')
    .argument('<local>', 'file or directory to write to, or - for standard output')
    .option(
      '-r, --recursive',
      'transfer a directory with all that is in it; run the same command again to resume',
    )
    .option('--json', 'print what was fetched as JSON')
    .action(async (source: string, local: string, options: TransferOptions, command: Command) => {
      if (local === '-' && options.json) {
        throw usageFailure('Cannot print JSON: the file goes to standard output');
      }
      await withClient(command, (client, call) =>
        options.recursive
          ? getDirectory(client, source, local, options, call)
          : get(client, source, local, options, call),
      );
    });
}

async function put(
  client: ClusterClient,
  local: string,
  targetText: string,
  options: TransferOptions,
  call: Required<Pick<CallOptions, 'signal'>>,
): Promise<void> {
  refuseSwapped(local, targetText, 'put LOCAL VOLUME:/path');
  const source = await openSource(local);
  const target = await located(client, targetOf(parseRemotePath(targetText), local), call);
  await checkTarget(client, target, call);
  await client.useVolume(target.volume, call);
  const progress = new Progress(basename(target.path), source.stats?.size ?? null);
  try {
    const stored = await uploadFile(client, target.volume, target.path, source.stream, {
      ...call,
      mode: (source.stats?.mode ?? 0o644) & 0o7777,
      uid: process.getuid?.() ?? 0,
      gid: process.getgid?.() ?? 0,
      expect: { kind: options.replace === false ? 'nothing' : 'anything' },
      onProgress: (bytes) => progress.update(bytes),
    });
    if (options.json) {
      const { inode: file } = stored.attributes;
      const { sizeBytes: size, etag, replaced } = stored;
      printJson({ ...target, file, size, etag, replaced });
    }
  } finally {
    progress.end();
    source.stream.destroy();
  }
}

async function openSource(local: string): Promise<{ stream: Readable; stats: Stats | null }> {
  if (local === '-') return { stream: process.stdin, stats: null };
  const stats = await stat(local).catch((error: unknown) => {
    if (isSystemError(error) && error.code === 'ENOENT') {
      throw notFoundFailure(`Cannot put "${local}": there is no such file here`);
    }
    throw error;
  });
  if (stats.isDirectory()) {
    throw usageFailure(
      `Cannot put "${local}": it is a directory, and put takes one file`,
      'use --recursive to put it with all that is in it',
    );
  }
  return {
    stream: createReadStream(local, { highWaterMark: READ_BYTES }),
    stats: stats.isFile() ? stats : null,
  };
}

function targetOf(remote: RemotePath, local: string): { volume: string; path: string } {
  const { volume, path, directory } = remote;
  if (!directory) return { volume, path };
  if (local === '-') {
    throw usageFailure(`Cannot put standard input into ${volume}:${path}: name the target file`);
  }
  return { volume, path: joinPath(path, basename(local)) };
}

/** Checks before a long upload what would fail after it. */
async function checkTarget(
  client: ClusterClient,
  target: { volume: string; path: string },
  call: CallOptions,
): Promise<void> {
  const existing = await resolveOrNull(client, target.volume, target.path, call);
  if (existing?.kind === 'directory') {
    throw preconditionFailure(
      `Cannot put a file at ${target.volume}:${target.path}: there is a directory`,
      `write ${target.volume}:${joinPath(target.path, '')} to put it into the directory`,
    );
  }
  if (existing !== null) return;
  const parent = dirname(target.path);
  const directory = await resolveOrNull(client, target.volume, parent, call);
  if (directory === null) {
    await client.query({ kind: 'volume', name: target.volume }, call);
    throw notFoundFailure(
      `Cannot put a file at ${target.volume}:${target.path}: the directory ${parent} does not exist`,
      `create it with "leasehold mkdir --parents ${target.volume}:${parent}"`,
    );
  }
}

/** @returns the inode at the path, or null if there is none */
export async function resolveOrNull(
  client: ClusterClient,
  volume: string,
  path: string,
  call: ResolveOptions,
): Promise<Attributes | null> {
  try {
    return await client.resolve(volume, path, call);
  } catch (error) {
    if (error instanceof ServiceError && error.code === 'not-found') return null;
    throw error;
  }
}

/** @returns the place that `from` gets at `to`: inside of it if that is a directory */
export async function placeInto(
  client: ClusterClient,
  verb: 'copy' | 'move',
  from: RemotePath,
  to: RemotePath,
  call: CallOptions,
): Promise<RemotePlace> {
  const { volume, path } = await located(client, to, call);
  const existing = await resolveOrNull(client, volume, path, call);
  if (existing?.kind === 'directory')
    return { volume, path: from.path === '/' ? path : joinPath(path, baseName(from.path)) };
  // A link at the end is replaced, and leads nowhere.
  if (!to.directory) return located(client, { volume: to.volume, path: to.path }, call, 'name');
  const code = existing === null ? 'not-found' : 'not-directory';
  throw new ServiceError(code, `Cannot ${verb} into ${to.volume}:${to.path}/: there is no such directory`);
}

async function get(
  client: ClusterClient,
  sourceText: string,
  local: string,
  options: TransferOptions,
  call: Required<Pick<CallOptions, 'signal'>>,
): Promise<void> {
  refuseSwapped(sourceText, local, 'get VOLUME:/path LOCAL', true);
  const named = parseRemotePath(sourceText);
  const source = await located(client, named, call);
  if (local === '-') {
    const download = await downloadFile(client, source.volume, source.path, call);
    const progress = new Progress(baseName(named.path), download.sizeBytes);
    try {
      await pipeline(Readable.from(withProgress(download, progress)), process.stdout, { end: false });
    } finally {
      progress.end();
    }
    return;
  }
  const target = await localTarget(local, baseName(named.path));
  for (let attempt = 1; ; attempt++) {
    const download = await downloadFile(client, source.volume, source.path, call);
    try {
      await (target.regular ? storeWhole(download, target.path) : storeInto(download, target.path));
      if (options.json) {
        const { volume, path } = source;
        const { sizeBytes: size, etag, attributes } = download;
        printJson({ volume, path, file: attributes.inode, size, etag, local: target.path });
      }
      return;
    } catch (error) {
      // It changed in place while it was read: another attempt may get one state.
      const changed = error instanceof ServiceError && error.code === 'precondition-failed';
      if (!changed || !target.regular || attempt === GET_ATTEMPTS_MAX) throw error;
    }
  }
}

async function localTarget(local: string, name: string): Promise<{ path: string; regular: boolean }> {
  const stats = await stat(local).catch((error: unknown) => {
    if (isSystemError(error) && error.code === 'ENOENT') return null;
    throw error;
  });
  if (stats === null) {
    if (local.endsWith('/')) {
      throw notFoundFailure(`Cannot write to "${local}": there is no such directory here`);
    }
    return { path: local, regular: true };
  }
  if (!stats.isDirectory()) return { path: local, regular: stats.isFile() };
  if (name === '') throw usageFailure('Cannot get the root of a volume: it is a directory');
  return { path: join(local, name), regular: true };
}

async function storeWhole(download: Download, path: string): Promise<void> {
  try {
    await writeFileAtomically(path, download.attributes.mode & 0o777, async (file) => {
      await writeAll(download, file, path);
      const { size } = await file.stat();
      if (size !== download.sizeBytes) throw shortFile(path, size, download.sizeBytes);
    });
  } catch (error) {
    if (!isSystemError(error) || error.code !== 'ENOENT') throw error;
    throw notFoundFailure(`Cannot write "${path}": there is no directory "${dirname(path)}" here`);
  }
}

/** Writes into an existing device, pipe or the like, which a rename cannot replace. */
async function storeInto(download: Download, path: string): Promise<void> {
  const file = await open(path, 'w');
  try {
    await writeAll(download, file, path);
  } finally {
    await file.close();
  }
}

async function writeAll(download: Download, file: FileHandle, path: string): Promise<void> {
  const progress = new Progress(basename(path), download.sizeBytes);
  try {
    for await (const chunk of withProgress(download, progress)) {
      for (let written = 0; written < chunk.length; ) {
        written += (await file.write(chunk, written)).bytesWritten;
      }
    }
  } finally {
    progress.end();
  }
}

async function* withProgress(
  download: Download,
  progress: Progress,
): AsyncGenerator<Uint8Array, void, undefined> {
  let bytes = 0;
  for await (const chunk of download.chunks) {
    bytes += chunk.length;
    progress.update(bytes);
    yield chunk;
  }
  if (bytes !== download.sizeBytes) throw shortFile('the file', bytes, download.sizeBytes);
}

function shortFile(path: string, found: number, expected: number): CommandFailure {
  return generalFailure(`Cannot fetch ${path}: ${found} of ${expected} bytes arrived`);
}

/** @throws CommandFailure if the local and the remote path are swapped */
export function refuseSwapped(first: string, second: string, usage: string, remoteFirst = false): void {
  const swapped = remoteFirst
    ? !looksRemote(first) && looksRemote(second)
    : looksRemote(first) && !looksRemote(second);
  if (!swapped) return;
  throw usageFailure(`The local and the remote path are in the wrong order`, `usage: leasehold ${usage}`);
}
