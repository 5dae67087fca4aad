export const LEASE_EVENTS = ['state', 'acquired', 'refreshed', 'keys', 'released', 'expired'] as const;
/** `state` comes first, with the present state; the others are changes. */
export type LeaseEventKind = (typeof LEASE_EVENTS)[number];

export function isLeaseEventKind(text: string): text is LeaseEventKind {
  return LEASE_EVENTS.some((kind) => kind === text);
}
