import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import { majority } from '../../base/quorum.ts';
import type { World } from '../../base/world.ts';
import { bounded } from '../process/bounded.ts';
import type { CopyState } from './copy-call.ts';

/** A file with contents of its own after that is one whose copies another server has completed. */
const ATTEMPTS_MAX = 3;
const BUSY_RETRY_MS = 200;

export interface FileFillsParts {
  readonly world: World;
  /** @see CommandResults['clone-open'] */
  open(file: FileId): Promise<readonly ServerId[] | null>;
  /** @see COPY_CALL */
  copyAt(server: ServerId, file: FileId): Promise<CopyState>;
  /** Durable when it resolves: from then on, reads do not use the snapshot's contents. */
  filled(file: FileId): Promise<void>;
}

/**
 * Gives files of clones contents of their own, before their first change: docs/design/clones.md. What this server
 * begins, it completes, if no request waits for it any more; if it ends before, the next request or the catalog's
 * primary does.
 */
export class FileFills {
  readonly #parts: FileFillsParts;
  readonly #inProgress = new Map<FileId, Promise<void>>();

  constructor(parts: FileFillsParts) {
    this.#parts = parts;
  }

  /** Resolves when the file has contents of its own, however long that takes. */
  fill(file: FileId): Promise<void> {
    return this.#inProgress.get(file) ?? this.#begin(file);
  }

  /** As `fill`, again while that may help. @throws ServiceError `busy` after `waitMs`: the change has no effect */
  async fillWithin(file: FileId, waitMs: number): Promise<void> {
    const { world } = this.#parts;
    const deadlineMs = world.nowMs() + waitMs;
    let why = '';
    const late = (): ServiceError => {
      const text = `The contents of file ${file}, of a clone, are being copied before its first change: retry later`;
      return new ServiceError('busy', `${text}${why}`, { retryAfterMs: BUSY_RETRY_MS });
    };
    for (;;) {
      try {
        return await bounded(world, this.fill(file), Math.max(1, deadlineMs - world.nowMs()), late);
      } catch (error) {
        if (!(error instanceof ServiceError) || !mayPass(error)) throw error;
        why = ` (${error.message})`;
        // The error of a copy says nothing about the change: that has not been ordered.
        if (world.nowMs() + BUSY_RETRY_MS >= deadlineMs) throw late();
        await world.sleep(BUSY_RETRY_MS);
      }
    }
  }

  #begin(file: FileId): Promise<void> {
    const filling = this.#fill(file).finally(() => this.#inProgress.delete(file));
    this.#inProgress.set(file, filling);
    return filling;
  }

  async #fill(file: FileId): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      const members = await this.#parts.open(file);
      if (members === null) return;
      try {
        await this.#copies(file, members);
      } catch (error) {
        if (attempt === ATTEMPTS_MAX) throw error;
        continue;
      }
      await this.#parts.filled(file);
      return;
    }
  }

  /** Resolves when a majority of the members has copies, on their disks; the others continue. */
  #copies(file: FileId, members: readonly ServerId[]): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const enough = majority(members.length);
    const failed = new Set<ServerId>();
    let copied = 0;
    const isOver = (): boolean => copied >= enough || failed.size > members.length - enough;
    const copyTo = async (server: ServerId): Promise<void> => {
      for (;;) {
        try {
          await this.#copyTo(server, file);
          if (++copied === enough) resolve();
          return;
        } catch (error) {
          failed.add(server);
          if (isOver()) reject(error);
          // Others may copy for long: meanwhile, this one may return.
          if (isOver() || !(error instanceof ServiceError) || !mayPass(error)) return;
          await this.#parts.world.sleep(BUSY_RETRY_MS);
        }
      }
    };
    for (const server of members) void copyTo(server);
    return promise;
  }

  async #copyTo(server: ServerId, file: FileId): Promise<void> {
    for (;;) {
      switch (await this.#copyState(server, file)) {
        case 'copied':
          return;
        case 'not-needed':
          throw new ServiceError('busy', `File ${file} has changed, or its servers have: retry`);
        case 'copying':
      }
    }
  }

  async #copyState(server: ServerId, file: FileId): Promise<CopyState> {
    try {
      return await this.#parts.copyAt(server, file);
    } catch (error) {
      if (!(error instanceof ServiceError) || error.code !== 'busy') throw error;
      await this.#parts.world.sleep(error.details.retryAfterMs ?? BUSY_RETRY_MS);
      return 'copying';
    }
  }
}

function mayPass({ remedy }: ServiceError): boolean {
  return remedy === 'retry' || remedy === 'redirect';
}
