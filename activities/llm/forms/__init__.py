"""All forms of clauses that are understood without a model; the first that fits a clause is meant."""

from activities.llm.forms import calendar, numbers, papers, shop

FORMS = (*calendar.FORMS, *papers.FORMS, *shop.FORMS, *numbers.FORMS)
