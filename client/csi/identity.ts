import { ServiceError } from '../../base/errors.ts';
import type { Cluster } from './cluster-access.ts';

const PROBE_TIMEOUT_MS = 3_000;

export interface IdentityOptions {
  readonly cluster: Cluster;
  readonly driverName: string;
  readonly version: string;
  readonly hasController: boolean;
  readonly hasTopology: boolean;
}

/** The Identity service. */
export class Identity {
  readonly #options: IdentityOptions;
  /** Whether the cluster has answered since the start. */
  #reached = false;

  constructor(options: IdentityOptions) {
    this.#options = options;
  }

  async pluginInfo() {
    const { driverName: name, version: vendorVersion } = this.#options;
    return { name, vendorVersion };
  }

  async capabilities() {
    const { hasController, hasTopology } = this.#options;
    const services = [
      ...(hasController ? ['CONTROLLER_SERVICE'] : []),
      ...(hasTopology ? ['VOLUME_ACCESSIBILITY_CONSTRAINTS'] : []),
    ];
    return {
      capabilities: [
        ...services.map((type) => ({ service: { type } })),
        ...(hasController ? [{ volumeExpansion: { type: 'ONLINE' } }] : []),
      ],
    };
  }

  /**
   * Ready once the cluster has answered. A later outage of the cluster is none of the plugin: a restart, which probes
   * decide about, would help nothing, and may end mounts.
   */
  async probe() {
    if (!this.#reached) this.#reached = await this.#isReachable();
    return { ready: { value: this.#reached } };
  }

  async #isReachable(): Promise<boolean> {
    const { cluster } = this.#options;
    try {
      await cluster.use(null, (client) => client.status({ timeoutMs: PROBE_TIMEOUT_MS }));
      return true;
    } catch (error) {
      // Also for a missing token: the answer says "not ready", and the other calls say why.
      if (error instanceof ServiceError) return false;
      throw error;
    }
  }
}
