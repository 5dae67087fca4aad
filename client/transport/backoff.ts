import type { Pace } from '../../base/retry.ts';

export const CLIENT_PACE: Pace = { firstMs: 10, largestMs: 250, spread: [0.5, 1] };
