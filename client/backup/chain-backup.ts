import type { SnapshotInfo } from '../../wire/catalog-api.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { DifferenceApplier } from '../difference/difference-applier.ts';
import { type ContentsPiece, hasContents } from '../difference/difference-records.ts';
import { fileContents, PIECE_BYTES } from '../difference/file-contents.ts';
import { snapshotDifference } from '../difference/snapshot-difference.ts';
import { preconditionFailure } from '../terminal/failure.ts';
import { prefetch } from '../transfer/prefetch.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { type BackupStore, LINK_SUFFIX } from './backup-store.ts';
import { type Link, latestOf, namingLink, openLink, readLinks } from './chain.ts';
import { type LinkTotals, linkBegin, type WrittenStep, writeLink } from './link-records.ts';
import { sealStream } from './sealed-stream.ts';

const FILES_AHEAD = 16;
const ID_BYTES = 16;
/** About what a backup has of each inode beside its contents. */
const RECORD_BYTES = 512;
/** Snapshots of such names were created by backups, each as the base of the next one. */
const CHAIN_SNAPSHOT = /^chain-/;

export interface ChainSource {
  readonly volume: string;
  readonly snapshot: SnapshotInfo;
  /** The backup to continue; null: a full one. */
  readonly base: Link | null;
}

export interface WrittenLink extends LinkTotals {
  readonly name: string;
  readonly snapshot: string;
  readonly from: string | null;
}

/** Creates a snapshot that stays, as the base of the next backup. */
export async function createChainSnapshot(
  client: ClusterClient,
  volume: string,
  call: CallOptions,
): Promise<SnapshotInfo> {
  const stamp = new Date(client.world.wallMs())
    .toISOString()
    .replaceAll(/[-:]|\..*/g, '')
    .toLowerCase();
  const name = `chain-${stamp}z-${client.world.randomBytes(2).toString('hex')}`;
  const { snapshot } = await client.command({ kind: 'snapshot-create', volume, name }, call);
  return snapshot;
}

/** @returns whether the snapshot was created by a backup, so that no person needs it */
export function isChainSnapshot(name: string): boolean {
  return CHAIN_SNAPSHOT.test(name);
}

/**
 * The backup to continue.
 * @param since the name of its snapshot; `last`: the latest of the volume
 * @throws CommandFailure if there is none, or if the volume has lost the snapshot
 */
export async function baseOf(
  client: ClusterClient,
  store: BackupStore,
  {
    volume,
    since,
    secret,
  }: { readonly volume: string; readonly since: string; readonly secret: Buffer | null },
  call: CallOptions,
): Promise<Link> {
  const { links, unreadable } = await readLinks(store, secret);
  const { root } = (await client.query({ kind: 'volume', name: volume }, call)).volume;
  const { snapshots } = await client.query({ kind: 'snapshots', volume }, call);
  // Another cluster's volume may have the same number, and snapshots with the same serials.
  const isThere = ({ begin: { snapshot } }: Link): boolean =>
    snapshots.some(
      ({ serial, name, madeNs }) =>
        serial === snapshot.serial && name === snapshot.name && madeNs === snapshot.madeNs,
    );
  const found = links.filter(
    ({ begin }) => begin.root === root && (since === 'last' || begin.snapshot.name === since),
  );
  // A backup whose last answer was lost may be there, although it has failed and has removed its snapshot.
  const base = latestOf(found.filter(isThere)) ?? latestOf(found);
  const what = since === 'last' ? `volume "${volume}"` : `snapshot ${volume}@${since}`;
  if (base === undefined) {
    const [bad] = unreadable;
    throw preconditionFailure(
      `Cannot make an increment: there is no backup of ${what} in ${store.place}`,
      bad === undefined
        ? 'make a full backup first, without --since'
        : `${bad.name} cannot be read: ${bad.why}`,
    );
  }
  if (isThere(base)) return base;
  throw preconditionFailure(
    `Cannot make an increment of ${base.name}: its snapshot ${volume}@${base.begin.snapshot.name} was removed`,
    'make a full backup, without --since',
  );
}

/** Writes a snapshot, or what has changed since the base's, as a backup of a store. */
export async function writeChainLink(
  client: ClusterClient,
  store: BackupStore,
  { volume, snapshot, base }: ChainSource,
  {
    secret,
    name,
    onBytes,
  }: { readonly secret: Buffer | null; readonly name: string; readonly onBytes: (bytes: number) => void },
  call: CallOptions,
): Promise<WrittenLink> {
  const { root, usedBytes, inodes } = (await client.query({ kind: 'volume', name: volume }, call)).volume;
  const from = base?.begin.snapshot ?? null;
  if (from !== null && from.serial >= snapshot.serial)
    throw preconditionFailure(
      `Cannot make an increment: snapshot "${snapshot.name}" is not later than "${from.name}"`,
      'back up a later snapshot, or the volume itself',
    );
  const totals: LinkTotals = { records: 0, bytes: 0 };
  const begin = linkBegin({
    volume,
    root,
    snapshot: namedPart(snapshot),
    from: from === null ? null : namedPart(from),
  });
  const steps = snapshotDifference(client, { volume, from: from?.serial ?? null, to: snapshot.serial }, call);
  const written = prefetch(steps, FILES_AHEAD, async ({ record, file }): Promise<WrittenStep> => {
    const contents = file === null ? none() : fileContents(client, file, call);
    // Small files are read ahead.
    return {
      record,
      contents: file !== null && file.sizeBytes <= PIECE_BYTES ? await readAhead(contents) : contents,
    };
  });
  async function* bytes(): AsyncGenerator<Uint8Array, void, undefined> {
    for await (const piece of writeLink(begin, written, totals)) {
      yield piece;
      onBytes(totals.bytes);
    }
  }
  const random = (count: number): Buffer => client.world.randomBytes(count);
  const header = { id: random(ID_BYTES).toString('hex'), base: base?.id ?? null };
  const expectedBytes = usedBytes + inodes * RECORD_BYTES;
  await store.write(name, sealStream(header, secret, bytes(), random), expectedBytes);
  return { name, snapshot: snapshot.name, from: from?.name ?? null, ...totals };
}

/** Name of a backup's file: sorts by time within a volume. */
export function linkName({ volume, name, serial }: SnapshotInfo, base: Link | null): string {
  const number = String(serial).padStart(6, '0');
  return `${volume}-${number}-${name}.${base === null ? 'full' : 'increment'}${LINK_SUFFIX}`;
}

export interface RestoredChain extends LinkTotals {
  readonly links: readonly string[];
}

/** Restores the backups of a chain, one after the other, into an empty directory. */
export async function restoreChain(
  client: ClusterClient,
  store: BackupStore,
  { chain, secret }: { readonly chain: readonly Link[]; readonly secret: Buffer | null },
  target: { readonly volume: string; readonly root: number },
  onBytes: (bytes: number) => void,
  call: CallOptions,
): Promise<RestoredChain> {
  const copies = new Map<number, number>();
  const totals: LinkTotals = { records: 0, bytes: 0 };
  for (const { name, begin } of chain) {
    copies.set(begin.root, target.root);
    await namingLink(store, name, async () => {
      await using opened = await openLink(store, name, secret);
      const { reader } = opened;
      await reader.begin();
      const applier = new DifferenceApplier(client, target, copies, call);
      for await (const { record, contents } of reader.steps()) {
        if (!hasContents(record)) await applier.apply(record, contents);
        else if ('node' in record && record.node.sizeBytes <= PIECE_BYTES) {
          await applier.apply(record, await readAhead(contents));
        } else {
          await applier.apply(record, contents);
          await applier.drain();
        }
        onBytes(totals.bytes + applier.bytes);
      }
      await applier.finish();
      totals.records += reader.totals.records;
      totals.bytes += reader.totals.bytes;
    });
  }
  return { links: chain.map(({ name }) => name), ...totals };
}

async function readAhead(contents: AsyncIterable<ContentsPiece>): Promise<AsyncIterable<ContentsPiece>> {
  const pieces: ContentsPiece[] = [];
  for await (const piece of contents) pieces.push(piece);
  return piecesOf(pieces);
}

async function* piecesOf(pieces: readonly ContentsPiece[]): AsyncGenerator<ContentsPiece, void, undefined> {
  yield* pieces;
}

async function* none(): AsyncGenerator<ContentsPiece, void, undefined> {}

function namedPart({ name, serial, madeNs }: Pick<SnapshotInfo, 'name' | 'serial' | 'madeNs'>): {
  name: string;
  serial: number;
  madeNs: string;
} {
  return { name, serial, madeNs };
}
