import { ServiceError } from '../../base/errors.ts';
import { nameCheck } from '../../catalog/names.ts';

/** What a URL under `/v1/files/` or `/v1/info/` names. */
export interface FilePath {
  /** Or a snapshot of it, where it is only read: `volume@snapshot`. */
  readonly volume: string;
  /** Names from the volume's root on; empty for the root itself. */
  readonly names: readonly string[];
  /** The URL ends in a slash: a directory is meant. */
  readonly directory: boolean;
  readonly search: URLSearchParams;
}

const TREE_NAME = /^[a-z0-9][a-z0-9._-]{0,62}(@[a-z0-9][a-z0-9._-]{0,62})?$/;

/**
 * Reads the path as the client sent it, because a router decodes on its own terms: `%2F`, `%25`, `;`
 * and `//` would mean something else behind it. Each segment is percent-decoded exactly once.
 *
 * @param url the request target, not decoded by anybody
 * @param prefix ends in a slash
 * @throws ServiceError `bad-request` or `name-too-long`
 */
export function parseFilePath(url: string, prefix: string): FilePath {
  if (url.includes('#')) throw new ServiceError('bad-request', 'A "#" in a path is written %23');
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

/**
 * Reads where something shall go to: `/docs/a.txt`, of the volume of `from`, or `volume:/docs/a.txt`; not percent-encoded beyond
 * what the query itself is.
 *
 * @throws ServiceError `bad-request` or `name-too-long`
 */
export function parseTarget(text: string, from: FilePath, parameter: string): FilePath {
  const [, volume = volumeOf(from), path = ''] =
    /^(?:([a-z0-9][a-z0-9._-]{0,62}):)?\/(.*)$/s.exec(text) ?? [];
  const segments = path.split('/');
  const directory = segments.at(-1) === '';
  if (directory) segments.pop();
  if (segments.length === 0) {
    const form = '"/path" or "volume:/path"';
    throw new ServiceError('bad-request', `"${parameter}" is ${form}, and names more than a root`);
  }
  for (const name of segments) nameCheck(name);
  return { volume, names: segments, directory, search: from.search };
}

/** @returns the name of the volume, also where a snapshot of it is meant */
export function volumeOf({ volume }: FilePath): string {
  return volume.replace(/@.*$/s, '');
}

/** @throws ServiceError `read-only` where the path is in a snapshot */
export function assertChangeable(path: FilePath): void {
  if (volumeOf(path) === path.volume) return;
  throw new ServiceError('read-only', `Cannot change ${displayPath(path)}: a snapshot stays as it is`);
}

/** The path within the volume, as the catalog's queries take it. */
export function volumePath(names: readonly string[]): string {
  return `/${names.join('/')}`;
}

/** The URL path of a directory's contents; the inverse of `parseFilePath`. */
export function directoryUrl(prefix: string, path: FilePath): string {
  return `${fileUrl(prefix, path)}/`;
}

/** The URL path of what is no directory. */
export function fileUrl(prefix: string, path: FilePath): string {
  return `${prefix}${[path.volume, ...path.names].map(encodeURIComponent).join('/')}`;
}

/** How messages name a path: as users write it on the command line. */
export function displayPath(path: FilePath): string {
  return JSON.stringify(`${path.volume}:/${path.names.join('/')}`);
}

/**
 * @param text a query, without its question mark
 * @throws ServiceError `bad-request` where the standard decoder would put U+FFFD for bytes that are not UTF-8
 */
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
