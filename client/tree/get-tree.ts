import type { BigIntStats } from 'node:fs';
import {
  type FileHandle as LocalFile,
  lstat,
  mkdir,
  open,
  readlink,
  rename,
  rm,
  symlink,
} from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { Attributes } from '../../wire/catalog-api.ts';
import { walk } from '../backup/walk.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import type { FileHandle } from '../cluster/file-handle.ts';
import { type CommandFailure, isSystemError, preconditionFailure } from '../terminal/failure.ts';
import { BoundedTransfers } from '../transfer/bounded-transfers.ts';
import { entityTag } from '../transfer/entity-tag.ts';
import { prefetch } from '../transfer/prefetch.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { type TreeReport, tryOrReport } from './report.ts';
import { isSame } from './same.ts';
import { FILES_AT_ONCE, PIECES_AT_ONCE, type Piece, partName, resumeOffset, sectionsOf } from './sections.ts';

const ATTEMPTS_MAX = 3;

/** Copies a directory of the cluster, or of a snapshot, to a local directory; otherwise as `putTree`. */
export async function getTree(
  client: ClusterClient,
  top: Attributes,
  local: string,
  report: TreeReport,
  call: CallOptions,
  onBytes: () => void = () => {},
): Promise<void> {
  const files = new BoundedTransfers(FILES_AT_ONCE);
  const get = new TreeGet(client, report, call, onBytes);
  /** Directories that could not be created: their entries are skipped. */
  const missing: string[] = [];
  try {
    for await (const { path, attributes } of walk(client, top, call)) {
      call.signal?.throwIfAborted();
      if (missing.some((directory) => path.startsWith(`${directory}/`))) continue;
      const localPath = join(local, path);
      if (attributes.junction !== undefined)
        report.junctions.push({ path, volume: attributes.junction.volume });
      if (attributes.kind === 'directory') {
        if (!(await get.directory(path, localPath, attributes))) missing.push(path);
      } else if (attributes.kind === 'symlink') {
        await get.link(path, localPath, attributes.target);
      } else if (attributes.kind !== 'file') {
        report.skipped.push(path);
      } else if (isSame(await lstatOrNull(localPath), attributes)) {
        report.same += 1;
      } else {
        await files.begin(() => get.file(path, localPath, attributes));
      }
    }
  } finally {
    await files.end();
  }
}

class TreeGet {
  readonly #client: ClusterClient;
  readonly #report: TreeReport;
  readonly #call: CallOptions;
  readonly #onBytes: () => void;

  constructor(client: ClusterClient, report: TreeReport, call: CallOptions, onBytes: () => void) {
    this.#client = client;
    this.#report = report;
    this.#call = call;
    this.#onBytes = onBytes;
  }

  async directory(path: string, localPath: string, { mode }: Attributes): Promise<boolean> {
    const exists = await tryOrReport(this.#report, path, async () => {
      const stats = await lstatOrNull(localPath);
      // A link to a directory is none: it would lead out of the tree.
      if (stats !== null && !stats.isDirectory()) throw conflictFailure(localPath);
      if (stats !== null) return true;
      // The copying user has to be able to write in it.
      await mkdir(localPath, { mode: (mode & 0o777) | 0o700 });
      this.#report.directories += 1;
      return true;
    });
    return exists ?? false;
  }

  async link(path: string, localPath: string, target: string): Promise<void> {
    await tryOrReport(this.#report, path, async () => {
      const stats = await lstatOrNull(localPath);
      if (stats?.isDirectory()) throw conflictFailure(localPath);
      if (stats?.isSymbolicLink() && (await readlink(localPath)) === target) return;
      if (stats !== null) await rm(localPath);
      await symlink(target, localPath);
      this.#report.links += 1;
    });
  }

  async file(path: string, localPath: string, attributes: Attributes): Promise<void> {
    await tryOrReport(this.#report, path, async () => {
      if ((await lstatOrNull(localPath))?.isDirectory()) throw conflictFailure(localPath);
      for (let attempt = 1; !(await this.#fetchUnchanged(localPath, attributes)); attempt++)
        if (attempt === ATTEMPTS_MAX) throw preconditionFailure('it changed during each attempt to read it');
    });
  }

  /** Copies a file to a part, and renames that. @returns false if the file changed in the cluster meanwhile */
  async #fetchUnchanged(localPath: string, attributes: Attributes): Promise<boolean> {
    const file = this.#client.openFile(attributes.inode, attributes);
    const before = await file.state(this.#call);
    const tag = entityTag({ inode: attributes.inode, contents: before.contents });
    const part = join(dirname(localPath), partName(basename(localPath), tag));
    const stats = await lstatOrNull(part);
    const from = stats?.isFile() ? resumeOffset(Number(stats.size), before.sizeBytes) : 0;
    // Private until it is complete.
    const local = await open(part, from === 0 ? 'w' : 'r+', 0o600);
    try {
      await local.truncate(from);
      for (const pieces of sectionsOf(from, before.sizeBytes)) {
        if (!(await this.#section(file, local, pieces))) break;
        await local.datasync();
      }
      const after = await file.state(this.#call);
      const { epoch, seq } = before.contents;
      if (after.contents.epoch !== epoch || after.contents.seq !== seq) {
        await rm(part, { force: true });
        return false;
      }
      await local.chmod(attributes.mode & 0o777);
      await local.utimes(secondsOf(attributes.accessedNs), secondsOf(attributes.modifiedNs));
      await local.sync();
    } finally {
      await local.close();
    }
    await rename(part, localPath);
    this.#report.files += 1;
    if (from > 0) {
      this.#report.continued += 1;
      this.#report.continuedBytes += from;
    }
    return true;
  }

  async #section(file: FileHandle, local: LocalFile, pieces: readonly Piece[]): Promise<boolean> {
    const read = prefetch(pieces, PIECES_AT_ONCE, async ({ offset, length }) => ({
      ...{ offset, length },
      bytes: (await file.read(offset, length, this.#call)).bytes,
    }));
    for await (const { offset, length, bytes } of read) {
      if (bytes.length !== length) return false;
      for (let written = 0; written < length; )
        written += (await local.write(bytes, written, length - written, offset + written)).bytesWritten;
      this.#report.bytes += length;
      this.#onBytes();
    }
    return true;
  }
}

async function lstatOrNull(localPath: string): Promise<BigIntStats | null> {
  try {
    return await lstat(localPath, { bigint: true });
  } catch (error) {
    if (isSystemError(error) && error.code === 'ENOENT') return null;
    throw error;
  }
}

function secondsOf(nanoseconds: string): number {
  return Number(nanoseconds) / 1e9;
}

function conflictFailure(localPath: string): CommandFailure {
  return preconditionFailure(`"${localPath}" exists, and is of another type`);
}
