/** All that planted bugs of the replica layer may be noticed by: conversations, directed schedules, random runs. */
import type { Campaign } from './planted.ts';
import { CONVERSATIONS } from './replica-conversations.ts';
import { campaign as world } from './replica-world.ts';

export const campaign: Campaign = {
  ...world,
  scenarios: { ...world.scenarios, ...CONVERSATIONS },
};
