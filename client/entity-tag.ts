import type { Attributes } from '../wire/catalog-api.ts';

/** @returns the entity tag under which the REST face knows these contents */
export function entityTag(attributes: Pick<Attributes, 'inode' | 'contents'>): string {
  const { epoch, seq } = attributes.contents;
  return `"${attributes.inode.toString(16)}-${epoch.toString(16)}-${seq.toString(16)}"`;
}
