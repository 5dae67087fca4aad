/** What a request by path is about: what the path leads to, or the name at its end, which may be a junction's. */
export type PathEnd = 'target' | 'name';

/** Answer of `GET /v1/locate/{volume}/{path}`: the volume that has the path's end, and the path in it. */
export interface LocatedPath {
  readonly volume: string;
  readonly path: string;
  /** The number of the volume's catalog. */
  readonly catalog: number;
}

/** Answer of `PUT /v1/junctions/{volume}/{path}`: a volume, and the directory at which it is attached. */
export interface Attachment {
  readonly volume: string;
  readonly inode: number;
}

/** A directory of a tree at which another volume is attached; the tree ends there. */
export interface AttachedAt {
  /** From the top of the tree. */
  readonly path: string;
  readonly volume: string;
}
