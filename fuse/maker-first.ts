import type { Attributes } from './backend.ts';

/** Who has made a file, or borne it, leads it first, if it holds a replica: it is asked first. */
export function withMakerFirst<Given extends Pick<Attributes, 'replicas'>>(
  attributes: Given,
  maker: string | null,
): Given {
  const { replicas } = attributes;
  if (maker === null || !replicas.includes(maker)) return attributes;
  return { ...attributes, replicas: [maker, ...replicas.filter((server) => server !== maker)] };
}
