import type { Logger } from 'pino';
import type { ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import { COMMANDS_VERSION } from '../../catalog/versions.ts';
import type { HttpChannel } from '../../platform/http-channel.ts';
import type { ServerInfo } from '../../wire/catalog-api.ts';
import type { ClusterServers } from '../../wire/http-api.ts';
import { parseJsonObject } from '../../wire/json.ts';
import { ConfigurationError } from '../config/configuration-error.ts';
import { drawIncarnation } from '../process/incarnation.ts';
import { isClusterServers } from './known-servers.ts';

const RETRY_MS = 1_000;
const ANSWER_MS = 20_000;

export interface JoinParts {
  readonly self: ServerId;
  readonly cluster: string;
  readonly url: string;
  readonly zone: string | null;
  readonly storageId: string;
  readonly join: readonly string[];
  readonly world: World;
  readonly log: Logger;
  channelTo(url: string): HttpChannel;
  /** @throws ConfigurationError if this server cannot work with the cluster: then it is not registered */
  accepts(servers: ClusterServers): void;
}

export interface Joined {
  readonly servers: ClusterServers;
  readonly registered: ServerInfo;
}

/**
 * Joins a running cluster: gets the list of servers, then has this server registered, so that the others connect to it
 * and accept its connections. Repeats until a server answers.
 * @throws ConfigurationError if the cluster is another one, or has removed this server
 */
export async function joinCluster(parts: JoinParts): Promise<Joined> {
  for (let attempt = 0; ; attempt++) {
    for (const base of parts.join) {
      const channel = parts.channelTo(base);
      try {
        return await joinAt(base, parts, channel);
      } catch (error) {
        if (error instanceof ConfigurationError) throw error;
        const reason = error instanceof Error ? error.message : String(error);
        if (attempt % 10 === 0)
          parts.log.warn({ server: base, reason }, 'cannot join through this server yet');
      } finally {
        await channel.destroy();
      }
    }
    await parts.world.sleep(RETRY_MS);
  }
}

async function joinAt(base: string, parts: JoinParts, via: HttpChannel): Promise<Joined> {
  const { self, cluster, url, zone, storageId, world } = parts;
  const before = await exchange(world, via, 'GET', '/v1/servers', null);
  if (!isClusterServers(before)) throw new Error('the answer contains no servers');
  if (before.cluster !== cluster) {
    throw new ConfigurationError(
      `Cannot join the cluster at ${base}: it is "${before.cluster}", ` +
        `not "${cluster}"; correct --cluster or --join`,
    );
  }
  parts.accepts(before);
  const command = {
    ...{ kind: 'server-register', id: self, url, storageId, freeBytes: 0, totalBytes: 0 },
    ...{ commandsVersion: COMMANDS_VERSION, ...(zone === null ? {} : { zone }) },
  };
  const body = { session: drawIncarnation(parts.world), number: 1, command };
  const { server } = await exchange(world, via, 'POST', '/v1/catalog/commands', body);
  const registered = server as ServerInfo;
  if (registered.state === 'out') {
    throw new ConfigurationError(
      `Cannot join the cluster at ${base}: server ${self} was removed from it. Add it again with ` +
        `"leasehold server add ${self} ${url}", or choose another --id`,
    );
  }
  const servers = await exchange(world, via, 'GET', '/v1/servers', null);
  return { servers: isClusterServers(servers) ? servers : before, registered };
}

async function exchange(
  world: World,
  channel: HttpChannel,
  method: 'GET' | 'POST',
  path: string,
  body: unknown,
): Promise<Record<string, unknown>> {
  const response = await channel.request({
    method,
    path,
    signal: world.timeout(ANSWER_MS),
    ...(body === null ? {} : { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
  });
  const text = await response.body.text();
  const answer = parseJsonObject(text);
  if (response.statusCode !== 200 || answer === null) {
    throw new Error(
      typeof answer?.detail === 'string' ? answer.detail : `it answered ${response.statusCode}`,
    );
  }
  return answer;
}
