import { readFile, stat } from 'node:fs/promises';
import type { Command } from 'commander';
import { PASSPHRASE_VARIABLE } from '../../base/environment.ts';
import { ServiceError } from '../../base/errors.ts';
import type { SnapshotInfo } from '../../wire/catalog-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import {
  type BackupStore,
  type ChainPlace,
  DirectoryStore,
  LINK_SUFFIX,
  storeOfFile,
} from '../backup/backup-store.ts';
import { chainTo, damaged, type Link, linksTo, readLinks, verifyChains } from '../backup/chain.ts';
import {
  baseOf,
  createChainSnapshot,
  isChainSnapshot,
  linkName,
  restoreChain,
  type WrittenLink,
  writeChainLink,
} from '../backup/chain-backup.ts';
import type { S3PlaceOptions } from '../backup/s3-place.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { isSystemError, notFoundFailure, usageFailure } from '../terminal/failure.ts';
import { Progress, printJson, printLine } from '../terminal/output.ts';
import { formatBytes } from '../terminal/quantities.ts';
import type { CallOptions } from '../transport/exchange.ts';

const SECRET_BYTES_MIN = 12;

export interface SecretOptions {
  readonly keyFile?: string;
}

/** Adds the options that say with what backups are encrypted. */
export function addSecretOptions<Target extends Command>(command: Target): Target {
  return command.option(
    '--key-file <file>',
    `file with the key of encrypted backups, such as 32 random bytes in base64 (default: the passphrase in ${PASSPHRASE_VARIABLE}, else not encrypted)`,
  );
}

/** Adds the options that say how to reach a store of S3. */
export function addS3Options<Target extends Command>(command: Target): Target {
  return command
    .option(
      '--s3-endpoint <url>',
      'base URL of the store of s3://BUCKET/PREFIX/ (default: AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, else AWS)',
    )
    .option(
      '--s3-ca <file>',
      'its trusted CA certificates (default: AWS_CA_BUNDLE, else those of the system)',
    );
}

/**
 * @param signal aborts requests to the store
 * @returns the place if it is one of chains: a directory, s3://BUCKET/PREFIX/, or a file *.lhb; null for other archives
 */
export async function chainPlaceOf(
  text: string,
  options: S3PlaceOptions,
  signal?: AbortSignal,
): Promise<ChainPlace | null> {
  if (text === '-') return null;
  if (text.startsWith('s3://')) {
    // Loaded by itself, since few commands need it.
    const { s3PlaceOf } = await import('../backup/s3-place.ts');
    const report = (line: string): void => void process.stderr.write(`leasehold: ${line}\n`);
    return s3PlaceOf(text, options, { world: systemWorld, signal, report });
  }
  if (text.endsWith(LINK_SUFFIX)) return storeOfFile(text);
  if (text.endsWith('/') || (await isDirectory(text))) return { store: new DirectoryStore(text), name: null };
  return null;
}

async function isDirectory(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory();
  } catch (error) {
    if (isSystemError(error) && error.code === 'ENOENT') return false;
    throw error;
  }
}

/** @returns the secret from the key file, else from the environment; null: backups are not encrypted */
export async function secretOf({ keyFile }: SecretOptions): Promise<Buffer | null> {
  const passphrase = process.env[PASSPHRASE_VARIABLE] ?? '';
  if (keyFile === undefined && passphrase === '') return null;
  const secret =
    keyFile === undefined
      ? Buffer.from(passphrase)
      : Buffer.from((await readFile(keyFile, 'latin1')).trimEnd(), 'latin1');
  if (secret.length >= SECRET_BYTES_MIN) return secret;
  const what = keyFile === undefined ? PASSPHRASE_VARIABLE : `the key file "${keyFile}"`;
  throw usageFailure(
    `Cannot use ${what}: it has less than ${SECRET_BYTES_MIN} bytes`,
    '"openssl rand -base64 32" prints a good key',
  );
}

export interface ChainBackupOptions extends SecretOptions {
  readonly since?: string;
  readonly json?: true;
}

export async function runChainBackup(
  client: ClusterClient,
  source: { readonly volume: string; readonly path: string },
  { store, name }: ChainPlace,
  options: ChainBackupOptions,
  call: CallOptions & { readonly signal: AbortSignal },
): Promise<void> {
  const { since, json } = options;
  if (source.path !== '/')
    throw usageFailure(
      'Cannot back up a directory into a chain: chains are of whole volumes',
      'write a tar archive instead: name a file that does not end in .lhb',
    );
  const [volume = '', given] = source.volume.split('@') as [string, string?];
  const secret = await secretOf(options);
  await client.useVolume(volume, call);
  const base = since === undefined ? null : await baseOf(client, store, { volume, since, secret }, call);
  const snapshot =
    given === undefined
      ? await createChainSnapshot(client, volume, call)
      : await snapshotNamed(client, volume, given, call);
  const written = await writeOrRemoveSnapshot(given === undefined, client, snapshot, call, () =>
    writeLink(client, store, { snapshot, base, secret, name }, call),
  );
  // The next increment continues this backup.
  const previous = base?.begin.snapshot.name;
  if (previous !== undefined && given === undefined && isChainSnapshot(previous))
    await removeSnapshot(client, volume, previous, call).catch((error: unknown) => {
      // It is retained, and stays.
      if (!(error instanceof ServiceError) || error.code !== 'protected') throw error;
    });
  if (json) printJson({ volume, ...written, encrypted: secret !== null });
  else printLine(`${written.name}: ${describe(written)}${secret === null ? '' : ', encrypted'}`);
}

async function writeLink(
  client: ClusterClient,
  store: BackupStore,
  {
    snapshot,
    base,
    secret,
    name,
  }: {
    readonly snapshot: SnapshotInfo;
    readonly base: Link | null;
    readonly secret: Buffer | null;
    readonly name: string | null;
  },
  call: CallOptions,
): Promise<WrittenLink> {
  const { volume } = snapshot;
  const progress = new Progress(`${volume}@${snapshot.name}`, null);
  try {
    return await writeChainLink(
      client,
      store,
      { volume, snapshot, base },
      { secret, name: name ?? linkName(snapshot, base), onBytes: (bytes) => progress.update(bytes) },
      call,
    );
  } finally {
    progress.end();
  }
}

/** A snapshot that was created for a backup is of no use if the backup fails. */
async function writeOrRemoveSnapshot<Value>(
  isOwn: boolean,
  client: ClusterClient,
  { volume, name }: SnapshotInfo,
  call: CallOptions,
  write: () => Promise<Value>,
): Promise<Value> {
  try {
    return await write();
  } catch (error) {
    // Also after the user has aborted the command; the error that matters is the first one.
    if (isOwn) await removeSnapshot(client, volume, name, {}).catch(() => undefined);
    throw call.signal?.aborted === true ? call.signal.reason : error;
  }
}

async function removeSnapshot(
  client: ClusterClient,
  volume: string,
  name: string,
  call: CallOptions,
): Promise<void> {
  await client.command({ kind: 'snapshot-remove', volume, name }, call).catch((error: unknown) => {
    if (!(error instanceof ServiceError) || error.code !== 'not-found') throw error;
  });
}

async function snapshotNamed(
  client: ClusterClient,
  volume: string,
  name: string,
  call: CallOptions,
): Promise<SnapshotInfo> {
  const { snapshots } = await client.query({ kind: 'snapshots', volume }, call);
  const snapshot = snapshots.find((one) => one.name === name);
  if (snapshot !== undefined) return snapshot;
  throw notFoundFailure(
    `There is no snapshot "${name}" of volume "${volume}"`,
    `"leasehold snapshot ls ${volume}" lists the snapshots`,
  );
}

export async function runVerify(
  place: string,
  options: SecretOptions & S3PlaceOptions & { readonly json?: true },
): Promise<void> {
  const chain = await chainPlaceOf(place, options);
  if (chain === null)
    throw usageFailure(
      `Cannot verify "${place}": it is neither a directory of backups, s3://BUCKET/PREFIX/, nor a file *.lhb`,
    );
  const { store, name } = chain;
  const report = await verifyChains(store, await secretOf(options), name);
  const { verified, problems } = report;
  if (options.json) printJson(report);
  else {
    for (const one of verified) printLine(`${one.name}: ${describe(one)}`);
    for (const { name: bad, why } of problems) printLine(`${bad}: UNREADABLE: ${why}`);
  }
  if (verified.length === 0 && problems.length === 0)
    throw notFoundFailure(`There are no backups in ${store.place}`);
  const [first] = problems;
  if (first !== undefined)
    throw damaged(
      `${problems.length} problems in ${store.place}, the first with ${first.name}: ${first.why}`,
      'restore earlier snapshots, and make a full backup',
    );
}

function describe({ snapshot, from, records, bytes }: Omit<WrittenLink, 'name'>): string {
  const what = from === null ? `snapshot ${snapshot}, full` : `snapshot ${snapshot}, increment since ${from}`;
  return `${what}, ${records} records with ${formatBytes(bytes)}`;
}

export async function runChainRestore(
  client: ClusterClient,
  { store, name }: ChainPlace,
  target: { readonly volume: string; readonly root: number; readonly text: string },
  options: SecretOptions & { readonly snapshot?: string; readonly json?: true },
  call: CallOptions,
): Promise<void> {
  const secret = await secretOf(options);
  const links = await readLinks(store, secret);
  const last = name === null ? undefined : links.links.find((one) => one.name === name);
  const unreadable = name === null ? undefined : links.unreadable.find((one) => one.name === name);
  if (unreadable !== undefined) throw damaged(`Cannot read ${name} in ${store.place}: ${unreadable.why}`);
  if (name !== null && last === undefined && options.snapshot === undefined)
    throw notFoundFailure(
      `There is no backup ${name} in ${store.place}`,
      '"leasehold backup verify" lists the backups of a place',
    );
  const chain =
    last === undefined || options.snapshot !== undefined
      ? chainTo(store, links, options.snapshot ?? null)
      : linksTo(store, links.links, last);
  const progress = new Progress(target.text, null);
  const restored = await restoreChain(
    client,
    store,
    { chain, secret },
    target,
    (bytes) => progress.update(bytes),
    call,
  ).finally(() => progress.end());
  const snapshot = chain.at(-1)?.begin.snapshot.name;
  if (options.json) printJson({ ...target, snapshot, ...restored });
  else
    process.stderr.write(
      `Restored snapshot ${snapshot} from ${chain.length} backups with ${formatBytes(restored.bytes)}\n`,
    );
}
