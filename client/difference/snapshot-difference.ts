import type { Attributes, EntryChange, InodeChange, SnapshotChanges } from '../../wire/catalog-api.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { prefetch } from '../transfer/prefetch.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { changePages } from './change-pages.ts';
import type { DifferenceRecord, DifferenceStep, Name, Node } from './difference-records.ts';

/** Nodes whose extended attributes are queried ahead. */
const NODES_AHEAD = 16;

/** Snapshots of a volume by their numbers; `from` null: an empty volume. */
export interface CompareRange {
  readonly volume: string;
  readonly from: number | null;
  readonly to: number;
}

type Draft =
  | { readonly kind: 'node'; readonly attributes: Attributes; readonly place: Name | null }
  | ({ readonly kind: 'change'; readonly contents: boolean; readonly xattrs: boolean } & Pick<
      InodeChange,
      'after'
    >)
  | { readonly kind: 'record'; readonly record: DifferenceRecord };

/** Yields the steps from one snapshot to another, at a cost as in `catalog/snapshot-changes.ts`. */
export async function* snapshotDifference(
  client: ClusterClient,
  range: CompareRange,
  call: CallOptions,
): AsyncGenerator<DifferenceStep, void, undefined> {
  yield* prefetch(new Comparison(client, range, call).drafts(), NODES_AHEAD, (draft) =>
    stepOf(client, draft, call),
  );
}

/** The bytes of contents that the steps have, without reading them. */
export async function differenceBytes(
  client: ClusterClient,
  range: CompareRange,
  call: CallOptions,
): Promise<number> {
  let bytes = 0;
  for await (const draft of new Comparison(client, range, call).drafts()) {
    if (draft.kind === 'node' && draft.attributes.kind === 'file') bytes += draft.attributes.sizeBytes;
    if (draft.kind === 'change' && draft.contents) bytes += draft.after.sizeBytes;
  }
  return bytes;
}

class Comparison {
  readonly #client: ClusterClient;
  readonly #range: CompareRange;
  readonly #call: CallOptions;
  /** New inodes of several names that were reported: they are reported once. */
  readonly #linked = new Set<number>();

  constructor(client: ClusterClient, range: CompareRange, call: CallOptions) {
    this.#client = client;
    this.#range = range;
    this.#call = call;
  }

  async *drafts(): AsyncGenerator<Draft, void, undefined> {
    const { volume, from, to } = this.#range;
    if (from === null) {
      const { volume: info } = await this.#client.query({ kind: 'volume', name: volume }, this.#call);
      const root = { kind: 'attributes', inode: info.root, snapshot: to } as const;
      const { attributes } = await this.#client.query(root, this.#call);
      yield { kind: 'change', after: attributes, contents: false, xattrs: true };
      yield* this.#listed(info.root);
      return;
    }
    for await (const page of this.#pages(from, null)) {
      for (const change of page.inodes) yield { kind: 'change', ...change };
      for (const name of page.names) yield* this.#named(name);
    }
  }

  #pages(from: number, directory: number | null): AsyncGenerator<SnapshotChanges, void, undefined> {
    const { volume, to } = this.#range;
    return changePages(this.#client, { volume, from, to }, directory, this.#call);
  }

  async *#named({ parent, name, before, after }: EntryChange): AsyncGenerator<Draft, void, undefined> {
    if (before !== null) {
      const { inode, kind, isRemoved: isGone } = before;
      const isDirectory = kind === 'directory';
      yield { kind: 'record', record: { kind: 'remove', parent, name, inode, isDirectory, isGone } };
    }
    if (after === null) return;
    if (after.isNew) yield* this.#added({ parent, name }, after.attributes);
    else yield addition({ parent, name }, after.attributes);
  }

  async *#added(place: Name, attributes: Attributes): AsyncGenerator<Draft, void, undefined> {
    const { inode, kind, links } = attributes;
    if (kind === 'directory') {
      yield { kind: 'node', attributes, place };
      yield* this.#listed(inode);
    } else if (links === 1) yield { kind: 'node', attributes, place };
    else {
      if (!this.#linked.has(inode)) yield { kind: 'node', attributes, place: null };
      this.#linked.add(inode);
      yield addition(place, attributes);
    }
  }

  async *#listed(directory: number): AsyncGenerator<Draft, void, undefined> {
    const { from, to } = this.#range;
    if (from === null) {
      for await (const { name, attributes } of this.#client.list(
        { inode: directory, snapshot: to },
        this.#call,
      ))
        yield* this.#added({ parent: directory, name }, attributes);
      return;
    }
    for await (const { names } of this.#pages(from, directory))
      for (const name of names) yield* this.#named(name);
  }
}

function addition({ parent, name }: Name, { inode, kind }: Attributes): Draft {
  return { kind: 'record', record: { kind: 'add', parent, name, inode, isDirectory: kind === 'directory' } };
}

async function stepOf(client: ClusterClient, draft: Draft, call: CallOptions): Promise<DifferenceStep> {
  switch (draft.kind) {
    case 'record':
      return { record: draft.record, file: null };
    case 'node': {
      const { attributes, place } = draft;
      const node = nodeOf(attributes, await xattrsOf(client, attributes, call));
      return { record: { kind: 'node', node, place }, file: node.kind === 'file' ? attributes : null };
    }
    case 'change': {
      const { after, contents, xattrs } = draft;
      const node = nodeOf(after, xattrs ? await xattrsOf(client, after, call) : null);
      return { record: { kind: 'change', node, contents }, file: contents ? after : null };
    }
  }
}

export function nodeOf(attributes: Attributes, xattrs: Node['xattrs']): Node {
  const { inode, kind, mode, uid, gid, modifiedNs, target, device, sizeBytes } = attributes;
  return { inode, kind, mode, uid, gid, modifiedNs, target, device, sizeBytes, xattrs };
}

export async function xattrsOf(
  client: ClusterClient,
  { inode, snapshot, xattrs: count }: Attributes,
  call: CallOptions,
): Promise<[name: string, value: string][]> {
  if (count === 0) return [];
  const scope = snapshot === undefined ? {} : { snapshot };
  const { names } = await client.query({ kind: 'xattrs', inode, ...scope }, call);
  const xattrs: [string, string][] = [];
  for (const name of names) {
    const { value } = await client.query({ kind: 'xattr', inode, name, ...scope }, call);
    xattrs.push([name, value]);
  }
  return xattrs;
}
