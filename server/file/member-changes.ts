import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import { MEMBERS_MAX } from '../../replica/codec.ts';
import type { View } from '../../replica/view.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';
import type { CatalogAccess } from './catalog-access.ts';
import type { FileReplicas } from './file-replicas.ts';
import { MemberPlans } from './member-plans.ts';
import { MemberReports } from './member-reports.ts';
import type { ReplicaHost } from './replica-host.ts';

export interface MemberChangesParts {
  readonly world: World;
  readonly log: Logger;
  readonly catalog: Pick<CatalogAccess, 'command' | 'durably' | 'catalogOf'>;
  readonly host: Pick<ReplicaHost, 'loaded'>;
  readonly replicas: Pick<FileReplicas, 'primary'>;
  isServer(server: ServerId): Promise<boolean>;
}

export interface MemberChange {
  readonly view: View;
  /** The replica here if it became primary for this change only, and no client has used the file meanwhile. */
  readonly unused: ReplicaDriver | null;
}

/** Moves replicas of files of which this server is, or becomes, primary; the catalog learns of each move twice. */
export class MemberChanges {
  readonly reports: MemberReports;
  readonly #parts: MemberChangesParts;
  readonly #plans: MemberPlans;

  constructor(parts: MemberChangesParts) {
    this.#parts = parts;
    this.reports = new MemberReports(parts);
    this.#plans = new MemberPlans(parts);
  }

  /** @see FileService.changeMembers */
  async change(file: FileId, members: readonly ServerId[], decidedBy?: number): Promise<MemberChange> {
    await this.#assertPossible(members);
    const { host, replicas } = this.#parts;
    const hadPrimary = host.loaded(file)?.isPrimary === true;
    const driver = await replicas.primary(file);
    const { usedAtMs } = driver;
    const view = await this.#plans.change(driver, members, decidedBy);
    // The next primary reports it too, but there may be none for a while.
    await this.reports.follow(driver, view);
    return { view, unused: hadPrimary || driver.usedAtMs !== usedAtMs ? null : driver };
  }

  async #assertPossible(members: readonly ServerId[]): Promise<void> {
    if (members.length === 0 || members.length > MEMBERS_MAX || new Set(members).size !== members.length) {
      throw new ServiceError(
        'bad-request',
        `A file must have 1 to ${MEMBERS_MAX} replicas on different servers`,
      );
    }
    for (const member of members)
      if (!(await this.#parts.isServer(member)))
        throw new ServiceError('bad-request', `There is no server "${member}"`);
  }
}
