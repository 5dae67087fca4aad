/** @see planted-lease.test.ts, which does the same for leases */
import { demandCatches } from './planted-catches.ts';

demandCatches('replica');
