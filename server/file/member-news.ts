import type { Logger } from 'pino';
import type { FileId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { View } from '../../replica/view.ts';
import type { Command } from '../../wire/catalog-api.ts';
import type { ReplicaDriver } from '../replica-driver.ts';

/** The catalog that could not be told of new members is told again, in milliseconds. */
const TELL_AGAIN_MS = 5_000;

interface MemberNewsParts {
  readonly world: World;
  readonly log: Logger;
  readonly catalog: { command(command: Command): Promise<unknown> };
}

/** Tells the catalog who the members of a file are. */
export class MemberNews {
  readonly #parts: MemberNewsParts;
  /** Numbers of views that the catalog was told of. */
  readonly #told = new WeakMap<ReplicaDriver, number>();

  constructor(parts: MemberNewsParts) {
    this.#parts = parts;
  }

  /** The catalog follows what the file's own sequence says. A primary tells it whenever it may not know. */
  tell(driver: ReplicaDriver): void {
    const { view, epoch } = driver.status();
    if (!driver.leads || view.number === 1 || view.joint !== undefined) return;
    if (this.#told.get(driver) === view.number) return;
    this.#told.set(driver, view.number);
    // A view that is not committed is not told: by then it is, or this server leads no more.
    const told = driver.committed(epoch, driver.orderedSeq).then(() => this.follow(driver.file, view));
    told.catch((error: unknown) => {
      this.#told.delete(driver);
      this.#parts.log.info(
        { file: driver.file, err: error },
        'the catalog does not know the new members of a file yet',
      );
      this.#parts.world.after(TELL_AGAIN_MS, () => this.tell(driver)).unref();
    });
  }

  /** Resolves once the catalog has the view. */
  async follow(file: FileId, { number, members }: View): Promise<void> {
    const view = { number, members: [...members] };
    await this.#parts.catalog.command({ kind: 'follow-view', inode: file, view });
  }
}
