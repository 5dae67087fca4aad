import type { Logger } from 'pino';
import { unreachable } from '../base/assert.ts';
import type { CellId, ServerId } from '../base/ids.ts';
import type { LeaseAction, LeaseEvent, LeaseTiming, LeaseView } from '../lease/actions.ts';
