import type { Pace } from '../base/retry.ts';

/** Backoff of clients between attempts and between connections. */
export const CLIENT_PACE: Pace = { firstMs: 10, largestMs: 250, spread: [0.5, 1] };
