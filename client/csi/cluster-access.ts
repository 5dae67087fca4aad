import type { World } from '../../base/world.ts';
import { ClusterClient } from '../cluster/cluster-client.ts';
import { Access, type AccessFiles, isTokenText } from '../transport/access.ts';
import { invalid } from './call-failure.ts';
import type { Texts } from './messages.ts';

export interface ClusterOptions {
  readonly world: World;
  readonly servers: readonly string[];
  /** The plugin's own credentials; secrets of a call replace its token. */
  readonly access: AccessFiles;
  readonly operationTimeoutMs?: number;
}

/** The key of a token in the secrets of a call. */
export const TOKEN_SECRET = 'token';

/** The cluster as one caller sees it: with a token of its own, or with the plugin's. */
export class Cluster {
  readonly options: ClusterOptions;

  constructor(options: ClusterOptions) {
    this.options = options;
  }

  /** The same cluster for a caller with these credentials. */
  as(access: AccessFiles): Cluster {
    return new Cluster({ ...this.options, access });
  }

  /** @throws CallFailure for secrets that the plugin does not know: a misspelt one would be ignored */
  with(secrets: Texts): Cluster {
    const unknown = Object.keys(secrets).find((key) => key !== TOKEN_SECRET);
    if (unknown !== undefined)
      throw invalid(`There is no secret "${unknown}": the only one is "${TOKEN_SECRET}"`);
    const { [TOKEN_SECRET]: token } = secrets;
    if (token === undefined) return this;
    // The error of a client would name another place of the token.
    if (!isTokenText(token.trim()))
      throw invalid(
        `Cannot use the secret "${TOKEN_SECRET}": it is no token as "leasehold token create" makes it`,
      );
    return this.as({ ...this.options.access, token });
  }

  /**
   * Runs `work` with a client of its own. What it changed in catalogs survives a power failure of all servers when this
   * resolves.
   * @param volume whose catalog the commands are for; null: the root catalog
   */
  async use<Value>(volume: string | null, work: (client: ClusterClient) => Promise<Value>): Promise<Value> {
    const { world, servers, access, operationTimeoutMs } = this.options;
    const limits = operationTimeoutMs === undefined ? {} : { operationTimeoutMs };
    await using client = new ClusterClient({ world, servers, access: new Access(access), ...limits });
    if (volume !== null) await client.useVolume(volume);
    const value = await work(client);
    if (client.hasUnflushedCommands) await client.flushCatalog();
    return value;
  }
}
