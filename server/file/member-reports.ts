import type { Logger } from 'pino';
import type { FileId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { View } from '../../replica/view.ts';
import type { Command } from '../../wire/catalog-api.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';

const REPORT_RETRY_MS = 5_000;

interface MemberReportsParts {
  readonly world: World;
  readonly log: Logger;
  readonly catalog: { command(command: Command): Promise<unknown> };
}

export class MemberReports {
  readonly #parts: MemberReportsParts;
  readonly #reported = new WeakMap<ReplicaDriver, number>();

  constructor(parts: MemberReportsParts) {
    this.#parts = parts;
  }

  /** As primary, reports the file's view to the catalog once it is committed, unless it did before; retries later. */
  report(driver: ReplicaDriver): void {
    const { view, epoch } = driver.status();
    if (!driver.isPrimary || view.number === 1 || view.joint !== undefined) return;
    if (this.#reported.get(driver) === view.number) return;
    this.#reported.set(driver, view.number);
    // Reported only once the view is committed; if that fails, this server is no longer primary.
    const reported = driver
      .untilReadable(epoch, driver.orderedSeq)
      .then(() => this.follow(driver.file, view));
    reported.catch((error: unknown) => {
      this.#reported.delete(driver);
      this.#parts.log.info(
        { file: driver.file, err: error },
        "cannot report a file's new members to the catalog yet",
      );
      this.#parts.world.after(REPORT_RETRY_MS, () => this.report(driver)).unref();
    });
  }

  async follow(file: FileId, { number, members }: View): Promise<void> {
    const view = { number, members: [...members] };
    await this.#parts.catalog.command({ kind: 'follow-view', inode: file, view });
  }
}
