import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';
import type { View } from '../../replica/view.ts';
import type { CommandResults } from '../../wire/catalog-api.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';
import type { CatalogAccess } from './catalog-access.ts';

const RETRY_MS = 100;

interface MemberPlansParts {
  readonly log: Logger;
  readonly catalog: Pick<CatalogAccess, 'command' | 'durably'>;
}

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

  constructor(parts: MemberPlansParts) {
    this.#parts = parts;
  }

  /** Plans the new members, and changes the members; resolves with the final view. @throws ServiceError */
  async change(driver: ReplicaDriver, members: readonly ServerId[]): Promise<View> {
    const { view } = driver;
    // The new members of a joint view were planned before it.
    if (view.joint !== undefined) return driver.changeMembers(members);
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
      const planned = await this.#send(driver, plans, view, true);
      if (planned !== null && added.some((server) => !planned.includes(server))) throw busyError(driver);
    } finally {
      plans.planning.delete(key);
    }
    // A change that was made meanwhile has ended the plan in the catalog.
    if (this.#plansOf(driver) !== plans || driver.view.number !== view.number) throw busyError(driver);
  }

  async #withdraw(driver: ReplicaDriver, plans: Plans, view: View): Promise<void> {
    await driver.untilReadable(driver.epoch, driver.orderedSeq);
    if (this.#plansOf(driver) === plans) await this.#send(driver, plans, view, false);
  }

  /** @returns the servers that are planned now; null if members of the catalog run an earlier release */
  async #send(
    { file }: ReplicaDriver,
    plans: Plans,
    view: View,
    durably: boolean,
  ): Promise<readonly string[] | null> {
    const { catalog, log } = this.#parts;
    const servers = new Set([...plans.planning.values(), plans.requested].flat());
    const members = [...servers].filter((server) => !view.members.includes(server));
    const mark = { epoch: plans.epoch, turn: ++plans.turn };
    const command = { kind: 'plan-members', inode: file, view: view.number, mark, members } as const;
    try {
      const result = await (durably ? catalog.durably(command) : catalog.command(command));
      return (result as CommandResults['plan-members']).planned;
    } catch (error) {
      if (!(error instanceof ServiceError) || !isUnknown(error)) throw error;
      log.debug(
        { file, err: error },
        'changing members without a plan in the catalog, as earlier releases do',
      );
      return null;
    }
  }
}

/** An earlier primary rejects the command; one of this release names the members that do not know it. */
function isUnknown({ code, details }: ServiceError): boolean {
  return code === 'bad-request' || details.outdated !== undefined;
}

function busyError({ file }: ReplicaDriver): ServiceError {
  return new ServiceError('busy', `The members of file ${file} have just changed`, {
    retryAfterMs: RETRY_MS,
  });
}
