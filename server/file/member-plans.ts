import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import type { View } from '../../replica/view.ts';
import {
  type CommandOf,
  type CommandResults,
  MOVED_FILES_MAX,
  type PlanOutcome,
} from '../../wire/catalog-api.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';
import type { CatalogAccess } from './catalog-access.ts';
import { CatalogBatches } from './catalog-batches.ts';
import { isUnknownCommand } from './unknown-command.ts';

const RETRY_MS = 100;

interface MemberPlansParts {
  readonly log: Logger;
  readonly catalog: Pick<CatalogAccess, 'durably' | 'catalogOf'>;
}

type PlannedFile = Omit<CommandOf<'plan-members'>, 'kind'>;

interface Plans {
  readonly epoch: number;
  turn: number;
  /** New members in the change that the replica was last asked for, which replaces an earlier one. */
  requested: readonly ServerId[];
  readonly planning: Map<symbol, readonly ServerId[]>;
}

/**
 * Changes the members of files. Each change is first planned in the catalog, so that a server that becomes a member
 * cannot be removed from the cluster meanwhile: with one more lost member the file would lose its majority. A plan ends
 * when the catalog follows the changed view, and when a primary finds that the change was abandoned.
 */
export class MemberPlans {
  readonly #parts: MemberPlansParts;
  readonly #plans = new WeakMap<ReplicaDriver, Plans>();
  /** Null if members of the catalog run an earlier release. */
  readonly #batches: CatalogBatches<PlannedFile, PlanOutcome | null>;

  constructor(parts: MemberPlansParts) {
    this.#parts = parts;
    const catalogOf = (file: number) => parts.catalog.catalogOf(file);
    this.#batches = new CatalogBatches(catalogOf, MOVED_FILES_MAX, (files) => this.#sendAll(files));
  }

  /**
   * Plans the new members, and changes the members.
   * @param decidedBy the number of the view by which these members were chosen: a later view stays as it is
   * @returns the final view
   * @throws ServiceError
   */
  async change(
    driver: ReplicaDriver,
    members: readonly ServerId[],
    decidedBy = Number.POSITIVE_INFINITY,
  ): Promise<View> {
    const { view } = driver;
    // The new members of a joint view were planned before it.
    if (view.joint !== undefined) return driver.changeMembers(members);
    if (view.number > decidedBy) return view;
    const added = members.filter((member) => !view.members.includes(member));
    if (added.length > 0) await this.#plan(driver, view, added);
    const plans = this.#plansOf(driver);
    plans.requested = added;
    const changed = await driver.changeMembers(members);
    // The members were these already, and no change was in progress.
    if (changed.number === view.number) await this.#withdraw(driver, plans, view);
    return changed;
  }

  #plansOf(driver: ReplicaDriver): Plans {
    const { counter } = driver.epoch;
    const known = this.#plans.get(driver);
    if (known?.epoch === counter) return known;
    const plans: Plans = { epoch: counter, turn: 0, requested: [], planning: new Map() };
    this.#plans.set(driver, plans);
    return plans;
  }

  /** Resolves once the catalog protects these servers, and this server may make them members after this view. */
  async #plan(driver: ReplicaDriver, view: View, added: readonly ServerId[]): Promise<void> {
    // Once a primary has committed an operation of its epoch in this view, changes of earlier epochs never take effect.
    await driver.untilReadable(driver.epoch, driver.orderedSeq);
    const plans = this.#plansOf(driver);
    const key = Symbol();
    plans.planning.set(key, added);
    try {
      const planned = await this.#send(driver, plans, view);
      if (planned !== null && added.some((server) => !planned.includes(server))) throw busyError(driver);
    } finally {
      plans.planning.delete(key);
    }
    // A change that was made meanwhile has ended the plan in the catalog.
    if (this.#plansOf(driver) !== plans || driver.view.number !== view.number) throw busyError(driver);
  }

  async #withdraw(driver: ReplicaDriver, plans: Plans, view: View): Promise<void> {
    await driver.untilReadable(driver.epoch, driver.orderedSeq);
    if (this.#plansOf(driver) === plans) await this.#send(driver, plans, view);
  }

  /** @returns the servers that are planned now; null if members of the catalog run an earlier release */
  async #send({ file }: ReplicaDriver, plans: Plans, view: View): Promise<readonly string[] | null> {
    const servers = new Set([...plans.planning.values(), plans.requested].flat());
    const members = [...servers].filter((server) => !view.members.includes(server));
    const mark = { epoch: plans.epoch, turn: ++plans.turn };
    const outcome = await this.#batches.add({ inode: file, view: view.number, mark, members });
    if (outcome === null) return null;
    if ('code' in outcome) throw new ServiceError(outcome.code, outcome.message);
    return outcome.planned;
  }

  async #sendAll(files: readonly PlannedFile[]): Promise<readonly (PlanOutcome | null)[]> {
    if (files.length > 1) {
      try {
        const result = await this.#parts.catalog.durably({ kind: 'plan-files', files: [...files] });
        return (result as CommandResults['plan-files']).plans;
      } catch (error) {
        if (!isUnknownCommand(error)) throw error;
      }
    }
    return Promise.all(files.map((file) => this.#sendOne(file)));
  }

  async #sendOne(file: PlannedFile): Promise<PlanOutcome | null> {
    const { catalog, log } = this.#parts;
    try {
      return (await catalog.durably({ kind: 'plan-members', ...file })) as CommandResults['plan-members'];
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      if (!isUnknownCommand(error)) return { code: error.code, message: error.message };
      log.debug(
        { file: file.inode, err: error },
        'changing members without a plan in the catalog, as earlier releases do',
      );
      return null;
    }
  }
}

function busyError({ file }: ReplicaDriver): ServiceError {
  return new ServiceError('busy', `The members of file ${file} have just changed`, {
    retryAfterMs: RETRY_MS,
  });
}
