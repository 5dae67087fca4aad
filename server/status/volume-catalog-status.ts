import { majority } from '../../base/quorum.ts';
import type { ServerStatus, VolumeCatalogStatus } from '../../wire/http-api.ts';
import type { ListedCatalog } from '../../wire/volume-catalogs.ts';

/** Volumes that a reason names. */
const NAMED_MAX = 10;

/** The catalogs of volumes, without removed ones. Each primary reports itself. */
export function volumeCatalogs(
  listed: readonly ListedCatalog[],
  servers: readonly ServerStatus[],
): VolumeCatalogStatus[] {
  const primaries = new Map(
    servers.flatMap(({ id, primaryOfCatalogs = [] }) =>
      primaryOfCatalogs.map((number) => [number, id] as const),
    ),
  );
  const copied = new Map(
    servers.flatMap(({ copied = [] }) => copied.map(({ catalog, inodes }) => [catalog, inodes] as const)),
  );
  return listed.flatMap(({ number, name, state, members, moving: phase }) => {
    if (state === 'removed') return [];
    const inodes = copied.get(number);
    const move =
      phase === undefined ? {} : { moving: { phase, ...(inodes === undefined ? {} : { copied: inodes }) } };
    return [{ number, name, state, members, primary: primaries.get(number) ?? null, ...move }];
  });
}

/** Why volumes are unavailable, or will be after one more failure. @param wanted members of a catalog */
export function volumeCatalogReasons(
  catalogs: readonly VolumeCatalogStatus[],
  servers: readonly ServerStatus[],
  wanted: number,
): string[] {
  const serving = new Set(servers.filter(({ state }) => state === 'serving').map(({ id }) => id));
  const missingOf = ({ members }: VolumeCatalogStatus) => members.filter((member) => !serving.has(member));
  const states = Map.groupBy(catalogs, (catalog) => {
    const { state, members, primary, moving } = catalog;
    if (members.length - missingOf(catalog).length < majority(members.length))
      return moving === undefined ? 'no-majority' : 'stopped-move';
    if (primary === null && state !== 'creating') return 'no-primary';
    return members.length < wanted ? 'few-members' : 'good';
  });
  const {
    'no-majority': unavailable = [],
    'stopped-move': stopped = [],
    'no-primary': waiting = [],
    'few-members': few = [],
  } = Object.fromEntries(states);
  const allMissing = (some: readonly VolumeCatalogStatus[]) =>
    [...new Set(some.flatMap(missingOf))].toSorted().join(', ');
  return [
    ...reason(
      unavailable,
      (names) => `No majority of the catalog's servers serves ${names}: start ${allMissing(unavailable)}`,
    ),
    ...reason(
      stopped,
      (names) =>
        `The move of ${names} waits for a majority of the new catalog's servers` +
        `${stopped.some(({ moving }) => moving?.phase !== 'begun') ? ', and changes wait with it' : ''}: ` +
        `start ${allMissing(stopped)}, or end the move (leasehold volume own-catalog NAME --abort)`,
    ),
    ...reason(waiting, (names) => `The catalog of ${names} currently has no primary`),
    ...reason(few, (names) => `The catalog of ${names} is on fewer than ${wanted} servers`),
  ];
}

function reason(catalogs: readonly VolumeCatalogStatus[], text: (names: string) => string): string[] {
  return catalogs.length === 0 ? [] : [text(namesOf(catalogs))];
}

function namesOf(catalogs: readonly VolumeCatalogStatus[]): string {
  const names = catalogs.slice(0, NAMED_MAX).map(({ name }) => name);
  const others = catalogs.length - names.length;
  const more = others === 0 ? '' : ` and ${others} more`;
  return `${catalogs.length === 1 ? 'volume' : 'volumes'} ${names.join(', ')}${more}`;
}
