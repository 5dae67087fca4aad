import { ServiceError } from '../../base/errors.ts';
import type { Attributes, Command } from '../../wire/catalog-api.ts';
import { type ArchiveMember, readArchive } from '../archive/archive-reader.ts';
import type { ArchiveEntry } from '../archive/pax.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { joinPath } from '../cluster/remote-path.ts';
import { generalFailure, isOfOneFile } from '../terminal/failure.ts';
import { BoundedTransfers } from '../transfer/bounded-transfers.ts';
import { prefetch } from '../transfer/prefetch.ts';
import type { CallOptions } from '../transport/exchange.ts';

const SMALL_BYTES = 1024 * 1024;
const FILES_AT_ONCE = 16;
const WRITE_BYTES = 1024 * 1024;
const WRITES_AT_ONCE = 4;

export interface RestoreReport {
  members: number;
  dataBytes: number;
  readonly failed: { readonly path: string; readonly why: string }[];
}

export interface RestoreTarget {
  readonly volume: string;
  readonly path: string;
}

type MemberAttributes = Pick<ArchiveEntry, 'path' | 'mode' | 'uid' | 'gid' | 'modifiedNs' | 'xattrs'>;

/** Stores the members of an archive below `target`. A member replaces a file at its path, but no directory. */
export async function restore(
  client: ClusterClient,
  source: AsyncIterable<Uint8Array>,
  target: RestoreTarget,
  report: RestoreReport,
  call: CallOptions,
): Promise<void> {
  const directories: { readonly inode: number; readonly entry: MemberAttributes }[] = [];
  const store = new Restorer(client, target, report, call);
  const small = new BoundedTransfers(FILES_AT_ONCE);
  try {
    for await (const member of readArchive(source)) {
      const { entry } = member;
      const { path, why } = entry;
      if (why !== undefined) {
        report.failed.push({ path, why });
        continue;
      }
      report.members += 1;
      if (entry.kind === 'directory') {
        const inode = await store.attempt(entry, () => store.directory(entry));
        if (inode !== null) directories.push({ inode, entry });
      } else if (entry.kind === 'file' && entry.sparseBytes === null && entry.dataBytes <= SMALL_BYTES) {
        const pieces: Buffer[] = [];
        for await (const piece of member.data) pieces.push(piece);
        // A later member of the same name replaces it, so their order counts.
        if (store.isUnderWay(entry.path)) await small.end();
        const ranges = [{ offset: 0, length: entry.dataBytes }];
        await small.begin(async () => {
          await store.attempt(entry, () => store.file(entry, ranges, piecesOf(pieces)));
        });
      } else {
        await small.end();
        await store.attempt(entry, () => store.restoreAlone(member));
      }
    }
  } finally {
    await small.end();
  }
  // Last, and the innermost first: changes in a directory change its time, and new entries inherit from it.
  for (const { inode, entry } of directories.reverse())
    await store.attempt(entry, () => store.setAttributes(inode, entry));
}

async function* piecesOf(pieces: readonly Buffer[]): AsyncGenerator<Buffer, void, undefined> {
  yield* pieces;
}

class Restorer {
  readonly #client: ClusterClient;
  readonly #target: RestoreTarget;
  readonly #report: RestoreReport;
  readonly #call: CallOptions;
  readonly #underWay = new Set<string>();

  constructor(client: ClusterClient, target: RestoreTarget, report: RestoreReport, call: CallOptions) {
    this.#client = client;
    this.#target = target;
    this.#report = report;
    this.#call = call;
  }

  isUnderWay(path: string): boolean {
    return this.#underWay.has(path);
  }

  /** @returns the result of `step`; null, and a line in the report, if it fails for a reason of this member alone */
  async attempt<Value>(
    { path }: Pick<ArchiveEntry, 'path'>,
    step: () => Promise<Value>,
  ): Promise<Value | null> {
    try {
      return await step();
    } catch (error) {
      if (!isOfOneFile(error)) throw error;
      this.#report.members -= 1;
      this.#report.failed.push({ path, why: error.message });
      return null;
    }
  }

  async directory(entry: ArchiveEntry): Promise<number> {
    const place = this.#placeOf(entry.path);
    try {
      const { mode, uid, gid } = entry;
      const { attributes } = await this.#client.command(
        { kind: 'make-directory', place, mode, uid, gid },
        this.#call,
      );
      return attributes.inode;
    } catch (error) {
      if (!(error instanceof ServiceError) || error.code !== 'exists') throw error;
      const there = await this.#client.resolve(place.volume, place.path, this.#call);
      if (there.kind === 'directory') return there.inode;
      throw generalFailure(
        `Cannot restore the directory "${entry.path}": there is a ${there.kind} of that name`,
      );
    }
  }

  /** Restores a large or sparse file, a link or a special file, while no small file is in progress. */
  async restoreAlone({ entry, ranges, data }: ArchiveMember): Promise<void> {
    if (entry.kind === 'file') return this.file(entry, ranges, data);
    const place = this.#placeOf(entry.path);
    const attributes = await this.#replaceExisting(place, () =>
      this.#command(this.#commandFor(entry, place)),
    );
    if (entry.kind !== 'link') await this.setAttributes(attributes.inode, entry);
  }

  async file(
    entry: ArchiveEntry,
    ranges: ArchiveMember['ranges'],
    data: AsyncGenerator<Buffer, void, undefined>,
  ): Promise<void> {
    this.#underWay.add(entry.path);
    try {
      const place = this.#placeOf(entry.path);
      const { mode, uid, gid } = entry;
      const orphan = await this.#client.command(
        { kind: 'create-orphan', volume: place.volume, place, mode, uid, gid },
        this.#call,
      );
      const { inode, replicas, policy } = orphan.attributes;
      const file = this.#client.openFile(inode, { replicas });
      const writes = prefetch(writesOf(ranges, data), WRITES_AT_ONCE, async ({ offset, bytes }) => {
        await file.write(offset, bytes, this.#call);
        return bytes.length;
      });
      for await (const length of writes) this.#report.dataBytes += length;
      if (entry.sparseBytes !== null) await file.truncate(entry.sparseBytes, this.#call);
      await (policy === 'read-only' ? file.seal(this.#call) : file.flush(this.#call));
      await file.settle(this.#call);
      await this.#client.command({ kind: 'replace', place, inode, expect: { kind: 'anything' } }, this.#call);
      await this.setAttributes(inode, entry);
    } finally {
      this.#underWay.delete(entry.path);
    }
  }

  async setAttributes(
    inode: number,
    { mode, uid, gid, modifiedNs, xattrs }: MemberAttributes,
  ): Promise<void> {
    for (const [name, value] of xattrs) {
      const base64 = Buffer.from(value).toString('base64');
      await this.#client.command({ kind: 'set-xattr', inode, name, value: base64, mode: 'set' }, this.#call);
    }
    await this.#client.command({ kind: 'set-attributes', inode, mode, uid, gid, modifiedNs }, this.#call);
  }

  async #replaceExisting(
    place: { readonly volume: string; readonly path: string },
    make: () => Promise<Attributes>,
  ): Promise<Attributes> {
    try {
      return await make();
    } catch (error) {
      if (!(error instanceof ServiceError) || error.code !== 'exists') throw error;
      await this.#client.command({ kind: 'unlink', place }, this.#call);
      return make();
    }
  }

  #commandFor(
    entry: ArchiveEntry,
    place: { readonly volume: string; readonly path: string },
  ): () => Promise<Command> {
    const { kind, mode, uid, gid, target, device } = entry;
    switch (kind) {
      case 'link':
        return async () => {
          const { volume, path } = this.#placeOf(target);
          const { inode } = await this.#client.resolve(volume, path, { ...this.#call, follow: false });
          return { kind: 'link', inode, place };
        };
      case 'symlink':
        return async () => ({ kind: 'symlink', place, target, uid, gid });
      case 'fifo':
      case 'character':
      case 'block':
        return async () => ({ kind: 'make-node', place, type: kind, device, mode, uid, gid });
      case 'file':
      case 'directory':
        throw new Error('Files and directories are stored in their own ways');
    }
  }

  async #command(command: () => Promise<Command>): Promise<Attributes> {
    const result = await this.#client.command(await command(), this.#call);
    if (!('attributes' in result)) throw new Error('A command that creates an inode returns its attributes');
    return result.attributes;
  }

  /** @returns where a member belongs @throws CommandFailure if its path leads out of the target directory */
  #placeOf(path: string): { volume: string; path: string } {
    const names = path.split('/').filter((name) => name !== '' && name !== '.');
    if (names.includes('..')) {
      throw generalFailure(`Cannot restore "${path}": the path leads out of the target directory`);
    }
    return { volume: this.#target.volume, path: names.reduce(joinPath, this.#target.path) };
  }
}

/** Yields the data in pieces of one write, each with its offset in the file. */
async function* writesOf(
  ranges: ArchiveMember['ranges'],
  data: AsyncGenerator<Buffer, void, undefined>,
): AsyncGenerator<{ readonly offset: number; readonly bytes: Uint8Array }, void, undefined> {
  let rest: Buffer = Buffer.alloc(0);
  for (const { offset, length } of ranges) {
    for (let at = 0; at < length; ) {
      const wanted = Math.min(WRITE_BYTES, length - at);
      const pieces: Buffer[] = [];
      for (let got = 0; got < wanted; ) {
        if (rest.length === 0) {
          const next = await data.next();
          if (next.done) throw new Error('The map of a sparse file names more data than the archive has');
          rest = next.value;
        }
        const piece = rest.subarray(0, wanted - got);
        rest = rest.subarray(piece.length);
        pieces.push(piece);
        got += piece.length;
      }
      yield { offset: offset + at, bytes: Buffer.concat(pieces) };
      at += wanted;
    }
  }
}
