/**
 * Goal: the simulations notice the bugs they are there for.
 * Method: load the cores and the simulations with one line changed, and demand that
 * the named scenario or one of the named seeds reports a violation. The unchanged code must pass
 * everything that any planted bug is caught by.
 */
import { demandCatches } from './planted-catches.ts';

demandCatches('lease');
demandCatches('claim');
