import type { BigIntStats } from 'node:fs';
import { type FileHandle as LocalFile, lstat, open, readdir, readlink } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join, resolve } from 'node:path';
import { ServiceError } from '../../base/errors.ts';
import { escapedBytes, utf8Text } from '../../base/utf8.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import type { FileHandle } from '../cluster/file-handle.ts';
import { baseName, joinPath } from '../cluster/remote-path.ts';
import { type CommandFailure, preconditionFailure } from '../terminal/failure.ts';
import { BoundedTransfers } from '../transfer/bounded-transfers.ts';
import { prefetch } from '../transfer/prefetch.ts';
import { whoami } from '../transfer/whoami.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { type TreeReport, tryOrReport } from './report.ts';
import { isSame } from './same.ts';
import {
  FILES_AT_ONCE,
  PIECES_AT_ONCE,
  type Piece,
  partName,
  resumeOffset,
  SECTION_BYTES,
  sectionsOf,
} from './sections.ts';

interface Place {
  readonly volume: string;
  readonly path: string;
}

/**
 * Copies a local directory to a directory of the cluster, which is created if it is missing. Files that the target has
 * with the same size and modification time are skipped, and a large one resumes where an earlier run was interrupted:
 * so the same call completes what was begun. Files that exist only in the cluster stay. Nothing is copied to volumes
 * that are attached below the target.
 * @param onBytes called after each transferred piece
 * @throws what ends the whole copy; failures of single files are in the report
 */
export async function putTree(
  client: ClusterClient,
  local: string,
  target: Place,
  report: TreeReport,
  call: CallOptions,
  onBytes: () => void = () => {},
): Promise<void> {
  const files = new BoundedTransfers(FILES_AT_ONCE);
  const put = new TreePut(client, local, target.volume, report, call, files, onBytes);
  try {
    const { mode, uid, gid } = await lstat(local, { bigint: true }).then(ownOf);
    await client.useVolume(target.volume, call);
    await put.putDirectory(
      '',
      await put.createDirectory(target, await resolveOrNull(client, target, call), { mode, uid, gid }),
    );
  } finally {
    await files.end();
  }
}

async function resolveOrNull(
  client: ClusterClient,
  place: Place,
  call: CallOptions,
): Promise<Attributes | null> {
  try {
    return await client.resolve(place.volume, place.path, call);
  } catch (error) {
    if (error instanceof ServiceError && error.code === 'not-found') return null;
    throw error;
  }
}

/** @returns owner and permissions for the copy. Only root keeps owners, as it could locally. */
function ownOf({ mode, uid, gid }: BigIntStats): { mode: number; uid: number; gid: number } {
  const isRoot = process.getuid?.() === 0;
  return {
    mode: Number(mode & 0o7777n),
    uid: isRoot ? Number(uid) : (process.getuid?.() ?? 0),
    gid: isRoot ? Number(gid) : (process.getgid?.() ?? 0),
  };
}

class TreePut {
  readonly #client: ClusterClient;
  readonly #local: string;
  readonly #volume: string;
  readonly #report: TreeReport;
  readonly #call: CallOptions;
  readonly #files: BoundedTransfers;
  readonly #onBytes: () => void;

  constructor(
    client: ClusterClient,
    local: string,
    volume: string,
    report: TreeReport,
    call: CallOptions,
    files: BoundedTransfers,
    onBytes: () => void,
  ) {
    this.#client = client;
    this.#local = local;
    this.#volume = volume;
    this.#report = report;
    this.#call = call;
    this.#files = files;
    this.#onBytes = onBytes;
  }

  async putDirectory(
    path: string,
    { path: remote, inode }: Place & { readonly inode: number },
  ): Promise<void> {
    const known = new Map<string, Attributes>();
    for await (const { name, attributes } of this.#client.list({ inode }, this.#call))
      known.set(name, attributes);
    const local = join(this.#local, path);
    const found = await tryOrReport(this.#report, path, () => readdir(local, { encoding: 'buffer' }));
    const names: string[] = [];
    for (const bytes of found ?? []) {
      const name = utf8Text(bytes);
      if (name !== null) names.push(name);
      else {
        const why = 'its name is not UTF-8, which names in a cluster must be';
        this.#report.failed.push({ path: join(path, escapedBytes(bytes)), why });
      }
    }
    for (const name of names.sort()) {
      this.#call.signal?.throwIfAborted();
      const place = { volume: this.#volume, path: joinPath(remote, name) };
      await this.#entry(join(path, name), place, known.get(name) ?? null);
    }
  }

  async createDirectory(
    place: Place,
    known: Attributes | null,
    own: ReturnType<typeof ownOf>,
  ): Promise<Place & { readonly inode: number }> {
    if (known?.kind === 'directory') return { ...place, inode: known.inode };
    if (known !== null) throw conflictFailure(place, known);
    const { attributes } = await this.#client.command({ kind: 'make-directory', place, ...own }, this.#call);
    this.#report.directories += 1;
    return { ...place, inode: attributes.inode };
  }

  async #entry(path: string, place: Place, known: Attributes | null): Promise<void> {
    const local = join(this.#local, path);
    const stats = await tryOrReport(this.#report, path, () => lstat(local, { bigint: true }));
    if (stats === null) return;
    if (known?.junction !== undefined) {
      this.#report.junctions.push({ path, volume: known.junction.volume });
    } else if (stats.isDirectory()) {
      const directory = await tryOrReport(this.#report, path, () =>
        this.createDirectory(place, known, ownOf(stats)),
      );
      if (directory !== null) await this.putDirectory(path, directory);
    } else if (stats.isSymbolicLink()) {
      await tryOrReport(this.#report, path, async () =>
        this.#link(linkText(await readlink(local, { encoding: 'buffer' })), place, known, ownOf(stats)),
      );
    } else if (stats.isFile()) {
      if (isSame(stats, known)) this.#report.same += 1;
      else
        await this.#files.begin(async () => {
          await tryOrReport(this.#report, path, () => this.#file(local, place, known));
        });
    } else {
      this.#report.skipped.push(path);
    }
  }

  async #link(
    target: string,
    place: Place,
    known: Attributes | null,
    { uid, gid }: ReturnType<typeof ownOf>,
  ): Promise<void> {
    if (known?.kind === 'symlink' && known.target === target) return;
    if (known?.kind === 'directory') throw conflictFailure(place, known);
    if (known !== null) await this.#client.command({ kind: 'unlink', place, by: whoami() }, this.#call);
    await this.#client.command({ kind: 'symlink', place, target, uid, gid }, this.#call);
    this.#report.links += 1;
  }

  async #file(path: string, place: Place, known: Attributes | null): Promise<void> {
    if (known?.kind === 'directory') throw conflictFailure(place, known);
    const local = await open(path, 'r');
    try {
      await this.#storeFile(path, local, place);
    } finally {
      await local.close();
    }
  }

  /** Copies a file, a large one to a part that a later run can resume; then replaces what is at `place`. */
  async #storeFile(path: string, local: LocalFile, place: Place): Promise<void> {
    const stats = await local.stat({ bigint: true });
    const sizeBytes = Number(stats.size);
    const own = ownOf(stats);
    const isLarge = sizeBytes > SECTION_BYTES;
    const upload = isLarge ? await this.#part(path, place, stats) : await this.#createOrphan(own);
    const { inode, policy } = upload.attributes;
    const file = this.#client.openFile(inode, upload.attributes);
    const from = isLarge ? resumeOffset((await file.state(this.#call)).sizeBytes, sizeBytes) : 0;
    for (const pieces of sectionsOf(from, sizeBytes)) {
      await this.#section(local, file, pieces);
      if (isLarge) await file.flush(this.#call);
    }
    const after = await local.stat({ bigint: true });
    if (after.size !== stats.size || after.mtimeNs !== stats.mtimeNs) {
      if (upload.part !== null) await this.#unlinkPart(upload.part);
      throw preconditionFailure('it changed while it was read');
    }
    await (policy === 'read-only' ? file.seal(this.#call) : file.flush(this.#call));
    await file.settle(this.#call);
    await this.#client.command({ kind: 'set-attributes', inode, modifiedNs: `${stats.mtimeNs}` }, this.#call);
    // The part is unlinked first: an unlinked file inherits all attributes of the one it replaces, except contents.
    if (upload.part !== null) await this.#unlinkPart(upload.part);
    const expect = { kind: 'anything' } as const;
    const { attributes } = await this.#client.command(
      { kind: 'replace', place, inode, expect, by: whoami() },
      this.#call,
    );
    if (attributes.mode !== own.mode || attributes.uid !== own.uid || attributes.gid !== own.gid)
      await this.#client.command({ kind: 'set-attributes', inode, ...own }, this.#call);
    this.#report.files += 1;
    if (from === 0) return;
    this.#report.continued += 1;
    this.#report.continuedBytes += from;
  }

  /** Creates an unlinked file, which the cluster collects unless it soon gets a directory entry. */
  async #createOrphan(
    own: ReturnType<typeof ownOf>,
  ): Promise<{ readonly attributes: Attributes; readonly part: null }> {
    const { attributes } = await this.#client.command(
      { kind: 'create-orphan', volume: this.#volume, ...own },
      this.#call,
    );
    return { attributes, part: null };
  }

  /** @returns the part that an earlier run has left of exactly this file, or a new one */
  async #part(
    path: string,
    { volume, path: whole }: Place,
    { size, mtimeNs, ino }: BigIntStats,
  ): Promise<{ readonly attributes: Attributes; readonly part: Place }> {
    const identity = JSON.stringify([hostname(), resolve(path), `${ino}`, `${size}`, `${mtimeNs}`]);
    const name = baseName(whole);
    const part = {
      volume,
      path: joinPath(whole.slice(0, -name.length - 1) || '/', partName(name, identity)),
    };
    const existing = await resolveOrNull(this.#client, part, this.#call);
    if (existing !== null) return { attributes: existing, part };
    const own = { mode: 0o600, uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
    const { attributes } = await this.#client.command(
      { kind: 'create-file', place: part, exclusive: false, ...own },
      this.#call,
    );
    return { attributes, part };
  }

  async #unlinkPart(part: Place): Promise<void> {
    await this.#client.command({ kind: 'unlink', place: part, by: whoami(), trash: false }, this.#call);
  }

  async #section(local: LocalFile, file: FileHandle, pieces: readonly Piece[]): Promise<void> {
    const written = prefetch(pieces, PIECES_AT_ONCE, async ({ offset, length }) => {
      const bytes = Buffer.allocUnsafe(length);
      for (let got = 0; got < length; ) {
        const { bytesRead } = await local.read(bytes, got, length - got, offset + got);
        if (bytesRead === 0) throw preconditionFailure('it became shorter while it was read');
        got += bytesRead;
      }
      await file.write(offset, bytes, this.#call);
      return length;
    });
    for await (const length of written) {
      this.#report.bytes += length;
      this.#onBytes();
    }
  }
}

function linkText(bytes: Buffer): string {
  const text = utf8Text(bytes);
  if (text !== null) return text;
  throw preconditionFailure(`the target of the link is not UTF-8: ${escapedBytes(bytes)}`);
}

function conflictFailure({ volume, path }: Place, { kind }: Attributes): CommandFailure {
  return preconditionFailure(`there is a ${kind} at ${volume}:${path}`);
}
