import type { Attributes } from '../../wire/catalog-api.ts';

/** @returns the entity tag of these contents in the REST interface */
export function entityTag(attributes: Pick<Attributes, 'inode' | 'contents'>): string {
  const { epoch, seq } = attributes.contents;
  return `"${attributes.inode.toString(16)}-${epoch.toString(16)}-${seq.toString(16)}"`;
}
