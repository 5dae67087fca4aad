import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { CatalogNumber } from '../../base/ids.ts';
import type { StopCheck } from '../../wire/http-api.ts';
import { storedVoters } from '../named/name-voters.ts';
import type { Gateway } from '../routing/gateway.ts';
import { fullServers, missingServers, stopCheck } from '../status/stop-check.ts';
import { READ } from './roles.ts';
import { serverStatuses } from './server-statuses.ts';

/** Whether a server can be stopped now: for upgrades, and for hooks that stop servers. */
export function stopCheckRoutes(app: FastifyInstance, gateway: Gateway): void {
  app.get('/v1/servers/:id/ok-to-stop', READ, async (request): Promise<StopCheck> => {
    const server = (request.params as Record<string, string>).id ?? '';
    const servers = await serverStatuses(gateway);
    if (!servers.some(({ id }) => id === server))
      throw new ServiceError('not-found', `There is no server ${server}`);
    const { catalogs } = gateway.services;
    await catalogs.refresh();
    const without = missingServers(server, servers);
    const full = fullServers(server, servers);
    const needingWithout = (others: readonly string[]) =>
      gateway.queryCatalog({ kind: 'files-needing', server, without: [...others] });
    const [needing, needingSpace, { view }, { volumes }] = await Promise.all([
      needingWithout(without),
      full.length === 0 ? null : needingWithout([...without, ...full]),
      gateway.queryCatalog({ kind: 'voters' }),
      gateway.queryCatalog({ kind: 'volumes' }),
    ]);
    const catalogMembers = catalogs.root.status().members;
    const volumeCatalogs = catalogs
      .listed()
      .filter(({ state }) => state !== 'removed')
      .map(({ name, number }) => ({
        volume: name,
        members: gateway.catalog(number as CatalogNumber).members,
      }));
    return stopCheck({
      ...{ server, servers, catalogMembers, volumeCatalogs, volumes, needing, needingSpace },
      voters: storedVoters(view, gateway.founders),
    });
  });
}
