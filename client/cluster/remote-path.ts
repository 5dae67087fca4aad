import { ServiceError } from '../../base/errors.ts';
import { isTreeName } from '../../wire/access.ts';

/** A place in the cluster as the command line names it: `VOLUME:/path`, or `VOLUME@SNAPSHOT:/path` for reading. */
export interface RemotePath {
  readonly volume: string;
  /** Begins with `/`; has no empty, `.` or `..` segment, and no `/` at its end except as the root. */
  readonly path: string;
  /** It was written with a `/` at its end, so a directory is meant. */
  readonly directory: boolean;
}

export type RemotePlace = Pick<RemotePath, 'volume' | 'path'>;

/** Parses `VOLUME:/path`. @throws ServiceError `bad-request` that says what is wrong with the text */
export function parseRemotePath(text: string): RemotePath {
  const refuse = (why: string) =>
    new ServiceError('bad-request', `Cannot use "${text}" as VOLUME:/path: ${why}`);
  const colon = text.indexOf(':');
  if (colon === -1) throw refuse('a volume and a colon come first, such as main:/notes.txt');
  const volume = text.slice(0, colon);
  const path = text.slice(colon + 1);
  if (volume === '') throw refuse('the name of the volume is missing before the colon');
  if (!isTreeName(volume)) {
    throw refuse(
      `"${volume}" cannot be a volume, or VOLUME@SNAPSHOT: 1 to 63 of a-z, 0-9, ".", "_" and "-", a letter or digit first`,
    );
  }
  if (!path.startsWith('/')) throw refuse(`the path begins with "/", as in ${volume}:/${path}`);
  if (path.includes('\0')) throw refuse('a path has no NUL character');
  const segments = path.split('/').filter((segment) => segment !== '' && segment !== '.');
  if (segments.includes('..')) throw refuse('".." could lead out of the volume');
  return { volume, path: `/${segments.join('/')}`, directory: /\/\.?$/.test(path) };
}

/** @returns whether `text` is meant as `VOLUME:/path` and not as a local file */
export function looksRemote(text: string): boolean {
  return /^[^/]+:\//.test(text);
}

export function baseName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

export function joinPath(path: string, name: string): string {
  return path === '/' ? `/${name}` : `${path}/${name}`;
}

export function encodePath(path: string): string {
  return path.split('/').map(encodeURIComponent).join('/');
}

/** `volume/path`, as the end of a URL. */
export function encodePlace({ volume, path }: RemotePlace): string {
  return encodeURIComponent(volume) + encodePath(path);
}

/** The name of a volume. @param tree it, or `VOLUME@SNAPSHOT` */
export function volumeOf(tree: string): string {
  return tree.replace(/@.*$/, '');
}
