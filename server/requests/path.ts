import { ServiceError } from '../../base/errors.ts';
import { nameCheck } from '../../catalog/names.ts';

export interface FilePath {
  /** A volume, or for reads a snapshot of it: `volume@snapshot`. */
  readonly volume: string;
  /** The names from the volume's root on; empty for the root itself. */
  readonly names: readonly string[];
  /** The URL ends in a slash: it names a directory. */
  readonly directory: boolean;
  readonly search: URLSearchParams;
}

/** The router does not see the rest of these paths: a user's path with any number of names. */
export const USER_PATHS: readonly string[] = ['/v1/files', '/v1/info', '/v1/junctions', '/v1/locate'];

const TREE_NAME = /^[a-z0-9][a-z0-9._-]{0,62}(@[a-z0-9][a-z0-9._-]{0,62})?$/;

/**
 * Parses an undecoded request target: a router would give `%2F`, `%25`, `;` and `//` another meaning. Each segment is
 * percent-decoded exactly once. `prefix` ends in a slash.
 * @throws ServiceError `not-found`, `bad-request` or `name-too-long`
 */
export function parseFilePath(url: string, prefix: string): FilePath {
  if (!url.startsWith(prefix)) throw new ServiceError('not-found', `A path under ${prefix} names a volume`);
  if (url.includes('#')) throw new ServiceError('bad-request', '"#" in a path must be encoded as %23');
  const queryAt = url.indexOf('?');
  const path = url.slice(prefix.length, queryAt < 0 ? url.length : queryAt);
  const search = parseSearch(queryAt < 0 ? '' : url.slice(queryAt + 1));
  const segments = path.split('/');
  const directory = segments.length > 1 && segments.at(-1) === '';
  if (directory) segments.pop();
  const [volume, ...names] = segments.map(decodeSegment) as [string, ...string[]];
  if (!TREE_NAME.test(volume)) {
    throw new ServiceError('not-found', `There is no volume ${JSON.stringify(volume)}`);
  }
  for (const name of names) nameCheck(name);
  return { volume, names, directory, search };
}

/** Parses `/docs/a.txt`, in the volume of `from`, or `volume:/docs/a.txt`; it was decoded with the query. */
export function parseTarget(text: string, from: FilePath, parameter: string): FilePath {
  const [, volume = volumeOf(from), path = ''] =
    /^(?:([a-z0-9][a-z0-9._-]{0,62}):)?\/(.*)$/s.exec(text) ?? [];
  const segments = path.split('/');
  const directory = segments.at(-1) === '';
  if (directory) segments.pop();
  if (segments.length === 0) {
    const form = '"/path" or "volume:/path"';
    throw new ServiceError('bad-request', `"${parameter}" must be ${form}, and not the root`);
  }
  for (const name of segments) nameCheck(name);
  return { volume, names: segments, directory, search: from.search };
}

/** Returns the name of the volume, also for a snapshot of it. */
export function volumeOf({ volume }: FilePath): string {
  return volume.replace(/@.*$/s, '');
}

export function assertChangeable(path: FilePath): void {
  if (volumeOf(path) === path.volume) return;
  throw new ServiceError('read-only', `Cannot change ${displayPath(path)}: snapshots are read-only`);
}

export function volumePath(names: readonly string[]): string {
  return `/${names.join('/')}`;
}

export function directoryUrl(prefix: string, path: FilePath): string {
  return `${fileUrl(prefix, path)}/`;
}

export function fileUrl(prefix: string, path: FilePath): string {
  return `${prefix}${[path.volume, ...path.names].map(encodeURIComponent).join('/')}`;
}

/** Returns a path as users write it on the command line, in quotes, for messages. */
export function displayPath(path: FilePath): string {
  return JSON.stringify(`${path.volume}:/${path.names.join('/')}`);
}

/** Parses a query. @throws ServiceError `bad-request` for bytes that are not UTF-8, instead of replacing them */
export function parseSearch(text: string): URLSearchParams {
  for (const [run] of text.matchAll(/(?:%[0-9a-f]{2})+/gi)) decodePercent(run, 'query');
  return new URLSearchParams(text);
}

function decodeSegment(segment: string): string {
  const text = decodePercent(segment, 'path');
  if (text.includes('/'))
    throw new ServiceError('bad-request', 'A name in a path contains an encoded slash (%2F)');
  return text;
}

function decodePercent(segment: string, where: 'path' | 'query'): string {
  try {
    return decodeURIComponent(segment);
  } catch (cause) {
    const detail = `${JSON.stringify(segment)} in the ${where} is not percent-encoded UTF-8`;
    throw new ServiceError('bad-request', detail, {}, { cause });
  }
}
