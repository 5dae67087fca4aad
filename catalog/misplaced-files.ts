import type { PlacedPosition } from '../wire/catalog-api.ts';
import { classFits, isRestricted } from '../wire/placement-class.ts';
import { placementClassOf } from './file-class.ts';
import { filesOfSets, type PlacedPage } from './placed-page.ts';
import type { PlacedSet } from './placement-tables.ts';
import type { Tables } from './tables.ts';

export interface MisplacedQuery {
  /** Servers that take no replicas now. */
  readonly away: readonly string[];
  readonly after: PlacedPosition | null;
  readonly countMax: number;
}

/** Sets of one volume, with classes from the first to the last one. */
interface Range {
  readonly volume: number;
  readonly first: number;
  readonly last: number;
}

/**
 * Files on servers that their class does not allow, if another, allowed one can take their place. Costs a step for each
 * set of servers in classes with labels or zones, and what is found: a change of labels touches no file.
 */
export function misplacedFiles(tables: Tables, query: MisplacedQuery): PlacedPage {
  const { placements, volumes, classes } = tables;
  const servers = new Map(tables.servers.all().map((server) => [server.id, server]));
  const isMisplaced = ({ volume, placement, replicas }: PlacedSet): boolean => {
    const required = placementClassOf(classes.of(volumes.row(volume), placement));
    const members = replicas.split(',');
    const isAllowed = (id: string): boolean => {
      const server = servers.get(id);
      // One that has not registered yet is assumed to be allowed.
      return server === undefined || classFits(required, server);
    };
    if (members.every(isAllowed)) return false;
    return [...servers.values()].some(
      ({ id, state }) => state === 'in' && !query.away.includes(id) && !members.includes(id) && isAllowed(id),
    );
  };
  const ranges = restrictedRanges(tables);
  /** Skips the sets of other classes, of which the index has any number. */
  const inRanges = (set: PlacedSet | undefined): PlacedSet | undefined => {
    let found = set;
    for (const { volume, first, last } of ranges) {
      if (found === undefined) return undefined;
      if (isBefore(found, volume, first))
        found = placements.nextSet({ volume, placement: first, members: 0, wanted: 0, replicas: '' });
      if (found !== undefined && found.volume === volume && found.placement <= last) return found;
    }
    return undefined;
  };
  return filesOfSets(placements, query, {
    isWrong: isMisplaced,
    next: (set) => inRanges(placements.nextSet(set)),
  });
}

function isBefore(set: PlacedSet, volume: number, placement: number): boolean {
  return set.volume < volume || (set.volume === volume && set.placement < placement);
}

/** In the order of the index, without overlaps: all classes of a restricted volume, and those of directories. */
function restrictedRanges({ volumes, classes }: Tables): Range[] {
  const restricted = new Set(volumes.restricted());
  const whole = [...restricted].map((volume) => ({ volume, first: 0, last: Number.MAX_SAFE_INTEGER }));
  const single = classes
    .all()
    .filter((row) => !restricted.has(row.volume) && isRestricted(placementClassOf(row)))
    .map(({ volume, directory }) => ({ volume, first: directory, last: directory }));
  return [...whole, ...single].toSorted((a, b) => a.volume - b.volume || a.first - b.first);
}
