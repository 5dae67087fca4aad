import { createReadStream } from 'node:fs';
import { open, rename, rm } from 'node:fs/promises';
import { Readable, type Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip, createGzip } from 'node:zlib';
import type { Command } from 'commander';
import { systemWorld } from '../../world/system-world.ts';
import { withOwnSnapshot } from '../backup/own-snapshot.ts';
import { type RestoreReport, restore } from '../backup/restore.ts';
import type { S3PlaceOptions } from '../backup/s3-place.ts';
import { backup, emptyReport } from '../backup/volume-backup.ts';
import { attachedBelow } from '../cluster/attached-volumes.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { located } from '../cluster/location.ts';
import { parseRemotePath } from '../cluster/remote-path.ts';
import { generalFailure, preconditionFailure, usageFailure } from '../terminal/failure.ts';
import { Progress, printable, printJson } from '../terminal/output.ts';
import { formatBytes } from '../terminal/quantities.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { junctionLine, throwIfAnyFailed } from '../tree/report.ts';
import {
  addS3Options,
  addSecretOptions,
  type ChainBackupOptions,
  chainPlaceOf,
  runChainBackup,
  runChainRestore,
  runVerify,
  type SecretOptions,
} from './backup-chain.ts';
import { clusterCommand, leaseClientOf, withClient } from './cluster-command.ts';

interface BackupOptions extends ChainBackupOptions, S3PlaceOptions {
  readonly snapshot: boolean;
}

interface RestoreOptions extends SecretOptions, S3PlaceOptions {
  readonly merge?: true;
  readonly json?: true;
  readonly snapshot?: string;
}

const GZIP_MAGIC = Buffer.from([0x1f, 0x8b]);

export function addBackupCommands(program: Command): void {
  const backups = clusterCommand(
    program,
    'backup',
    'write a volume, or a directory of it, into an archive that tar can read, or a volume into a chain of backups',
  )
    .argument('<source>', 'VOLUME, or VOLUME:/directory; of a snapshot, VOLUME@SNAPSHOT')
    .argument(
      '<archive>',
      'tar archive to write, compressed if it ends in .gz; - for standard output; for a chain, a directory or FILE.lhb, or s3://BUCKET/PREFIX/',
    )
    .option('--no-snapshot', 'make no temporary snapshot; the archive may mix states of several moments')
    .option(
      '--since <snapshot>',
      'in a chain: only what changed since the backup of this snapshot; "last": the latest',
    )
    .option('--json', 'print what was archived as JSON');
  addS3Options(addSecretOptions(backups)).action(
    async (source: string, archive: string, options: BackupOptions, command: Command) => {
      if (archive === '-' && options.json)
        throw usageFailure('Cannot print JSON: the archive goes to standard output');
      await withClient(command, async (client, call) => {
        const chain = await chainPlaceOf(archive, options, call.signal);
        if (chain === null && (options.since !== undefined || options.keyFile !== undefined))
          throw usageFailure(
            `Cannot use --since and --key-file with the tar archive "${archive}"`,
            'name a directory, with a / at its end if it does not exist, or a file *.lhb',
          );
        if (chain === null) return runBackup(client, source, archive, options, call, command);
        const place = await located(client, placeOf(source), call);
        return runChainBackup(client, place, chain, options, call);
      });
    },
  );

  const verify = backups
    .command('verify')
    .description('read all backups of a chain, and check digests, order and completeness; needs no cluster')
    .argument(
      '<place>',
      'directory or s3://BUCKET/PREFIX/ of backups; or FILE.lhb, with those that it continues',
    )
    .option('--json', 'print what was checked as JSON');
  // After its own name, an option is its own, not one of "backup".
  addS3Options(addSecretOptions(verify)).action((place: string, _: unknown, command: Command) =>
    runVerify(place, command.optsWithGlobals()),
  );

  const restores = clusterCommand(
    program,
    'restore',
    'restore an archive to a volume, or to a directory of it',
  )
    .argument(
      '<archive>',
      'archive of "leasehold backup" or of tar, compressed by gzip or not; - for standard input; of a chain, its directory, s3://BUCKET/PREFIX/ or FILE.lhb',
    )
    .argument('<target>', 'VOLUME, or VOLUME:/directory; it must exist')
    .option('--merge', 'allow a directory that is not empty; entries of the same name are replaced')
    .option('--snapshot <name>', 'of a chain: the snapshot to restore (default: the latest)')
    .option('--json', 'print what was restored as JSON');
  addS3Options(addSecretOptions(restores)).run(
    (client, call, archive: string, target: string, options: RestoreOptions) =>
      runRestore(client, archive, target, options, call),
  );
}

async function runBackup(
  client: ClusterClient,
  source: string,
  archive: string,
  options: BackupOptions,
  call: CallOptions & { readonly signal: AbortSignal },
  command: Command,
): Promise<void> {
  const { volume, path } = await located(client, placeOf(source), call);
  if (!options.snapshot || volume.includes('@')) {
    await writeArchive(client, { volume, path }, archive, options, call);
    return;
  }
  await client.resolve(volume, path, call);
  // A snapshot shows only empty directories there.
  for (const junction of await attachedBelow(client, { volume, path }, call))
    process.stderr.write(`leasehold: ${junctionLine(junction, 'archived')}\n`);
  await client.useVolume(volume, call);
  const leases = leaseClientOf(command);
  const report = (text: string): void => void process.stderr.write(`leasehold: ${text}\n`);
  try {
    await withOwnSnapshot({ client, leases, report }, volume, call, async (name, signal) => {
      const place = { volume: name === null ? volume : `${volume}@${name}`, path };
      await writeArchive(client, place, archive, options, { ...call, signal });
    });
  } finally {
    await leases.close();
  }
}

async function writeArchive(
  client: ClusterClient,
  { volume, path }: { readonly volume: string; readonly path: string },
  archive: string,
  options: BackupOptions,
  call: CallOptions & { readonly signal: AbortSignal },
): Promise<void> {
  const top = await client.resolve(volume, path, call);
  if (top.kind !== 'directory')
    throw usageFailure(
      `Cannot archive ${volume}:${path}: it is a ${top.kind}`,
      '"leasehold get" fetches one file',
    );
  const report = emptyReport();
  const progress = new Progress(`${volume}:${path}`, null);
  async function* withProgress(): AsyncGenerator<Uint8Array, void, undefined> {
    for await (const piece of backup(client, top, report, call)) {
      yield piece;
      progress.update(report.dataBytes);
    }
  }
  try {
    await writeFileAtOnce(archive, async (sink) => {
      const bytes = Readable.from(withProgress(), { objectMode: false });
      if (archive.endsWith('.gz')) await pipeline(bytes, createGzip(), sink, { signal: call.signal });
      else await pipeline(bytes, sink, { signal: call.signal });
    });
  } finally {
    progress.end();
  }
  const { torn, leftOut, junctions } = report;
  if (options.json) printJson({ volume, path, ...report });
  for (const junction of options.snapshot ? [] : junctions)
    process.stderr.write(`leasehold: ${junctionLine(junction, 'archived')}\n`);
  for (const one of leftOut)
    process.stderr.write(`leasehold: skipped the socket "${printable(one)}": archives cannot hold sockets\n`);
  if (torn.length > 0) {
    throw preconditionFailure(
      `The archive is written, but these files changed during each attempt to read them, and may mix several states: ${torn.map(printable).join(', ')}`,
      'stop the programs that write them, and back up their directory again',
    );
  }
}

/** Writes beside the file and renames it: it appears when it is complete, and then survives power loss. */
async function writeFileAtOnce(archive: string, write: (sink: Writable) => Promise<void>): Promise<void> {
  if (archive === '-') return write(process.stdout);
  const draft = `${archive}.${systemWorld.randomBytes(4).toString('hex')}.part`;
  const file = await open(draft, 'wx', 0o600);
  try {
    await write(file.createWriteStream({ flush: true }));
    await rename(draft, archive);
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  } finally {
    await file.close();
  }
}

async function runRestore(
  client: ClusterClient,
  archive: string,
  target: string,
  options: RestoreOptions,
  call: CallOptions & { readonly signal: AbortSignal },
): Promise<void> {
  const chain = await chainPlaceOf(archive, options, call.signal);
  if (chain === null && options.snapshot !== undefined)
    throw usageFailure(`Cannot choose a snapshot of "${archive}": a tar archive has one state`);
  if (chain !== null && options.merge)
    throw usageFailure('Cannot merge a backup of a chain: restore it to an empty directory');
  const place = await located(client, placeOf(target), call);
  const top = await client.resolve(place.volume, place.path, call);
  if (top.kind !== 'directory')
    throw usageFailure(`Cannot restore to ${place.volume}:${place.path}: it is a ${top.kind}`);
  if (!options.merge) {
    for await (const { name } of client.list(top, call)) {
      throw preconditionFailure(
        `Cannot restore to ${place.volume}:${place.path}: it is not empty, it has "${printable(name)}"`,
        'choose an empty directory, or use --merge to replace what has the same name',
      );
    }
  }
  await client.useVolume(place.volume, call);
  if (chain !== null) {
    const text = `${place.volume}:${place.path}`;
    await runChainRestore(client, chain, { volume: place.volume, root: top.inode, text }, options, call);
    return;
  }
  const source = archive === '-' ? process.stdin : createReadStream(archive, { highWaterMark: 1024 * 1024 });
  const report: RestoreReport = { members: 0, dataBytes: 0, failed: [] };
  const progress = new Progress(`${place.volume}:${place.path}`, null);
  async function* withProgress(): AsyncGenerator<Uint8Array, void, undefined> {
    for await (const piece of uncompressed(source)) {
      yield piece;
      progress.update(report.dataBytes);
    }
  }
  try {
    await restore(client, withProgress(), place, report, call);
  } catch (error) {
    // Every other error is about the archive.
    if (!(error instanceof Error) || error.constructor !== Error) throw error;
    throw generalFailure(
      `Cannot read ${archive}: ${error.message}`,
      `${report.members} of its members were restored`,
      { cause: error },
    );
  } finally {
    progress.end();
    source.destroy();
  }
  if (options.json) printJson({ ...place, ...report });
  else process.stderr.write(`Restored ${report.members} members with ${formatBytes(report.dataBytes)}\n`);
  throwIfAnyFailed(report.failed, 'restore');
}

async function* uncompressed(source: Readable): AsyncGenerator<Uint8Array, void, undefined> {
  const pieces = source[Symbol.asyncIterator]() as AsyncIterator<Buffer>;
  const first = await pieces.next();
  if (first.done) return;
  async function* all(): AsyncGenerator<Buffer, void, undefined> {
    yield first.value as Buffer;
    for (let next = await pieces.next(); !next.done; next = await pieces.next()) yield next.value;
  }
  if (first.value.subarray(0, 2).equals(GZIP_MAGIC)) yield* Readable.from(all()).compose(createGunzip());
  else yield* all();
}

function placeOf(text: string): { readonly volume: string; readonly path: string } {
  const { volume, path } = parseRemotePath(text.includes(':') ? text : `${text}:/`);
  return { volume, path };
}
