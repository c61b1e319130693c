"""All pages of the site."""

from fastapi import APIRouter

from server.page import answers, inbox, lists, sign_in, task

router = APIRouter(include_in_schema=False)
for part in (sign_in, inbox, task, answers, lists):
    router.include_router(part.router)
