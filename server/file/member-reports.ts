import type { Logger } from 'pino';
import type { FileId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { View } from '../../replica/view.ts';
import { MOVED_FILES_MAX } from '../../wire/catalog-api.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';
import type { CatalogAccess } from './catalog-access.ts';
import { CatalogBatches } from './catalog-batches.ts';
import { isUnknownCommand } from './unknown-command.ts';

const REPORT_RETRY_MS = 5_000;

interface MemberReportsParts {
  readonly world: World;
  readonly log: Logger;
  readonly catalog: Pick<CatalogAccess, 'command' | 'catalogOf'>;
}

interface FollowedFile {
  readonly inode: FileId;
  readonly view: { readonly number: number; readonly members: string[] };
}

interface Report {
  readonly number: number;
  readonly ended: Promise<unknown>;
}

/** Reports views of files to their catalogs, those of many files with one command. */
export class MemberReports {
  readonly #parts: MemberReportsParts;
  readonly #reports = new WeakMap<ReplicaDriver, Report>();
  readonly #batches: CatalogBatches<FollowedFile, unknown>;

  constructor(parts: MemberReportsParts) {
    this.#parts = parts;
    const catalogOf = (file: number) => parts.catalog.catalogOf(file);
    this.#batches = new CatalogBatches(catalogOf, MOVED_FILES_MAX, async (files) => {
      await this.#send(files);
      return [];
    });
  }

  /** As primary, reports the file's view to the catalog once it is committed, unless it did before; retries later. */
  report(driver: ReplicaDriver): void {
    const { view, epoch } = driver.status();
    if (!driver.isPrimary || view.number === 1 || view.joint !== undefined) return;
    if (this.#reports.get(driver)?.number === view.number) return;
    // Reported only once the view is committed; if that fails, this server is no longer primary.
    const ended = driver.untilReadable(epoch, driver.orderedSeq).then(() => this.#follow(driver.file, view));
    const report = { number: view.number, ended };
    this.#reports.set(driver, report);
    ended.catch((error: unknown) => {
      if (this.#reports.get(driver) === report) this.#reports.delete(driver);
      this.#parts.log.info(
        { file: driver.file, err: error },
        "cannot report a file's new members to the catalog yet",
      );
      this.#parts.world.after(REPORT_RETRY_MS, () => this.report(driver)).unref();
    });
  }

  /** Resolves when the catalog has the view, which is committed. */
  async follow(driver: ReplicaDriver, view: View): Promise<void> {
    const report = this.#reports.get(driver);
    const isReported =
      report?.number === view.number &&
      (await report.ended.then(
        () => true,
        () => false,
      ));
    if (!isReported) await this.#follow(driver.file, view);
  }

  #follow(inode: FileId, { number, members }: View): Promise<unknown> {
    return this.#batches.add({ inode, view: { number, members: [...members] } });
  }

  async #send(files: readonly FollowedFile[]): Promise<void> {
    const { catalog } = this.#parts;
    if (files.length > 1) {
      try {
        await catalog.command({ kind: 'follow-views', files: [...files] });
        return;
      } catch (error) {
        if (!isUnknownCommand(error)) throw error;
      }
    }
    // A member of the catalog may run an earlier release.
    await Promise.all(files.map((file) => catalog.command({ kind: 'follow-view', ...file })));
  }
}
