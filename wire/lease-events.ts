export const LEASE_EVENTS = ['state', 'acquired', 'refreshed', 'keys', 'released', 'expired'] as const;
/** `state` comes first and tells how things stand; the others tell what changed. */
export type LeaseEventKind = (typeof LEASE_EVENTS)[number];

export function isLeaseEventKind(text: string): text is LeaseEventKind {
  return LEASE_EVENTS.some((kind) => kind === text);
}
