/** Chains of backups: a full one, and increments that each continue an earlier backup. */
import { CommandFailure, isSystemError, systemReason } from '../terminal/failure.ts';
import type { BackupStore } from './backup-store.ts';
import { type LinkBegin, LinkReader, type LinkTotals } from './link-records.ts';
import { readSealedHeader, type SealedHeader, SealedStreamError } from './sealed-stream.ts';

/** As for data that is damaged on all replicas. */
const EXIT_DAMAGED = 8;

/** A backup of a chain, as far as its beginning tells. */
export interface Link {
  readonly name: string;
  readonly id: string;
  readonly base: string | null;
  readonly begin: LinkBegin;
}

export interface UnreadableLink {
  readonly name: string;
  readonly why: string;
  /** Absent if the header cannot be read. */
  readonly id?: string;
}

export interface Links {
  readonly links: readonly Link[];
  readonly unreadable: readonly UnreadableLink[];
}

export function damaged(message: string, hint = '', options?: ErrorOptions): CommandFailure {
  return new CommandFailure(EXIT_DAMAGED, message, hint, options);
}

/** Reads the beginnings of all backups of a store. */
export async function readLinks(store: BackupStore, secret: Buffer | null): Promise<Links> {
  const links: Link[] = [];
  const unreadable: UnreadableLink[] = [];
  for (const name of await store.names()) {
    let header: SealedHeader | null = null;
    try {
      await using opened = await openLink(store, name, secret);
      header = opened.header;
      links.push({ name, id: header.id, base: header.base, begin: await opened.reader.begin() });
    } catch (error) {
      unreadable.push({ name, why: reasonOf(error), ...(header === null ? {} : { id: header.id }) });
    }
  }
  return { links, unreadable };
}

/** The backups that lead to a snapshot, the full one first. @param snapshot null: the latest */
export function chainTo(store: BackupStore, { links, unreadable }: Links, snapshot: string | null): Link[] {
  const others = unreadable.map(({ name, why }) => `cannot read ${name}: ${why}`).join('; ');
  if (snapshot === null && unreadable.length > 0)
    throw damaged(`Cannot tell the latest backup in ${store.place}`, `${others}; choose one with --snapshot`);
  const found = latestOf(links.filter(({ begin }) => snapshot === null || begin.snapshot.name === snapshot));
  if (found === undefined) {
    const what = snapshot === null ? 'backup' : `backup of a snapshot "${snapshot}"`;
    throw damaged(`There is no ${what} in ${store.place}`, others || listOf(links));
  }
  return linksTo(store, links, found, others);
}

/** By time: serial numbers begin anew with each volume. */
export function latestOf(links: readonly Link[]): Link | undefined {
  const timeOf = ({ begin }: Link): bigint => BigInt(begin.snapshot.madeNs);
  return links.toSorted((a, b) => (timeOf(a) < timeOf(b) ? -1 : 1)).at(-1);
}

function listOf(links: readonly Link[]): string {
  return links.length === 0
    ? ''
    : `there are those of ${links.map(({ begin }) => begin.snapshot.name).join(', ')}`;
}

export function linksTo(store: BackupStore, links: readonly Link[], last: Link, others = ''): Link[] {
  const chain = [last];
  for (let first = last; first.base !== null; ) {
    const { base, name, begin } = first;
    const before = links.find(({ id }) => id === base);
    const from = begin.from?.name ?? '';
    if (before === undefined)
      throw damaged(
        `The chain is broken: ${name} continues the backup of snapshot "${from}", which is missing in ${store.place}`,
        others || `find the file with the id ${base}, or restore an earlier snapshot`,
      );
    const why = mismatchOf(before, first);
    if (why !== null) throw damaged(`The chain is broken: ${name} does not continue ${before.name}: ${why}`);
    chain.unshift(before);
    first = before;
  }
  return chain;
}

/** @returns why `link` cannot continue `base`; null if it does */
export function mismatchOf(base: Link, link: Link): string | null {
  const { from, root, snapshot } = link.begin;
  const { snapshot: of } = base.begin;
  if (base.begin.root !== root) return 'they are of different volumes';
  if (from === null || from.serial !== of.serial || from.name !== of.name || from.madeNs !== of.madeNs)
    return `it begins at snapshot "${from?.name ?? ''}", and that one ends at "${of.name}"`;
  return snapshot.serial > of.serial ? null : 'it is of an earlier snapshot';
}

export interface OpenLink extends AsyncDisposable {
  readonly header: SealedHeader;
  readonly reader: LinkReader;
}

/** Opens a backup. Its key and damage show when it is read. */
export async function openLink(store: BackupStore, name: string, secret: Buffer | null): Promise<OpenLink> {
  const source = store.read(name);
  const stream = await readSealedHeader(source);
  const reader = new LinkReader(stream.open(secret));
  return { header: stream.header, reader, [Symbol.asyncDispose]: () => stream.close() };
}

/** @throws CommandFailure that names the backup, in place of what its stream throws */
export async function namingLink<Value>(
  store: BackupStore,
  name: string,
  work: () => Promise<Value>,
): Promise<Value> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof SealedStreamError)
      throw damaged(`Cannot read ${name} in ${store.place}: ${error.message}`, '', { cause: error });
    throw error;
  }
}

export interface VerifiedLink extends LinkTotals {
  readonly name: string;
  readonly snapshot: string;
  readonly from: string | null;
}

export interface ChainReport {
  readonly verified: VerifiedLink[];
  readonly problems: { readonly name: string; readonly why: string }[];
}

/** Reads all backups of a store, or those that lead to one, and checks digests, order and completeness. */
export async function verifyChains(
  store: BackupStore,
  secret: Buffer | null,
  only: string | null,
): Promise<ChainReport> {
  const { links, unreadable } = await readLinks(store, secret);
  const report: ChainReport = { verified: [], problems: [] };
  const wanted = only === null ? null : wantedLinks(store, links, only);
  const isWanted = ({ name }: { readonly name: string }): boolean => wanted === null || wanted.has(name);
  for (const one of unreadable) if (wanted === null || one.name === only) report.problems.push(one);
  for (const link of links.filter(isWanted)) {
    const base = links.find(({ id }) => id === link.base);
    if (link.base === null) continue;
    const why = base === undefined ? missingBase(link) : mismatchOf(base, link);
    if (why !== null) report.problems.push({ name: link.name, why });
  }
  const verify = async (link: Link, known: Set<number>): Promise<void> => {
    await verifyLink(store, secret, link, known, report);
    const next = links.filter((one) => one.base === link.id && isWanted(one));
    for (const [index, one] of next.entries())
      await verify(one, index === next.length - 1 ? known : new Set(known));
  };
  for (const link of links.filter(isWanted)) {
    const hasBase = links.some(({ id }) => id === link.base);
    if (!hasBase) await verify(link, new Set());
  }
  return report;
}

function wantedLinks(store: BackupStore, links: readonly Link[], only: string): ReadonlySet<string> {
  const last = links.find(({ name }) => name === only);
  return new Set(last === undefined ? [only] : linksTo(store, links, last).map(({ name }) => name));
}

function missingBase({ begin, base }: Link): string {
  return `it continues the backup of snapshot "${begin.from?.name ?? ''}" (id ${base}), which is missing`;
}

/** @param known inodes of the snapshot before; advanced to those of this one */
async function verifyLink(
  store: BackupStore,
  secret: Buffer | null,
  { name, base, begin }: Link,
  known: Set<number>,
  { verified, problems }: ChainReport,
): Promise<void> {
  // Without the backup before, what it refers to is not known.
  const isKnown = (inode: number): boolean => known.has(inode) || (base !== null && known.size === 0);
  if (base === null) known.add(begin.root);
  try {
    await using opened = await openLink(store, name, secret);
    const { reader } = opened;
    await reader.begin();
    for await (const { record, contents } of reader.steps()) {
      for await (const _ of contents);
      const named =
        record.kind === 'node' ? record.place?.parent : 'parent' in record ? record.parent : undefined;
      const inode =
        record.kind === 'node' ? undefined : record.kind === 'change' ? record.node.inode : record.inode;
      const unknown = [named, inode].find((one) => one !== undefined && !isKnown(one));
      if (unknown !== undefined)
        throw new SealedStreamError(`it refers to inode ${unknown}, which the chain does not have`);
      if (record.kind === 'node') known.add(record.node.inode);
    }
    const from = begin.from?.name ?? null;
    verified.push({ name, snapshot: begin.snapshot.name, from, ...reader.totals });
  } catch (error) {
    problems.push({ name, why: reasonOf(error) });
  }
}

function reasonOf(error: unknown): string {
  if (error instanceof SealedStreamError) return error.message;
  if (isSystemError(error)) return systemReason(error);
  throw error;
}
