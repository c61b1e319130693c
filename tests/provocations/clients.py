"""One call that changes something, with each library as its documentation shows it, against a server on loopback.

The retries of a library are turned off where it has some, as docs/tools.md asks for a call with an effect.
"""

import importlib
from typing import Any
from urllib.parse import urlsplit

SECRET = "sk-secret"  # noqa: S105  # it is none
"""The key, token or password that each library gets, and that no fault may show."""


def _import(name: str) -> Any:
    return importlib.import_module(name)


def twilio(url: str) -> object:
    http_client = _import("twilio.http.http_client").TwilioHttpClient(timeout=2)
    request = http_client.request

    def to_loopback(method: str, uri: str, **more: Any) -> Any:
        return request(method, url + urlsplit(uri).path, **more)

    http_client.request = lambda method, uri, *args, **more: to_loopback(
        method, uri, **dict(zip(("params", "data", "headers", "auth", "timeout"), args, strict=False)), **more
    )
    client = _import("twilio.rest").Client("AC1", SECRET, http_client=http_client)
    return client.messages.create(to="+15005550006", from_="+15005550001", body="hello")


def sendgrid(url: str) -> object:
    mail = _import("sendgrid.helpers.mail").Mail("ann@shop.example", "ben@shop.example", "hello", "text")
    return _import("sendgrid").SendGridAPIClient(SECRET, host=url).send(mail)


def pygithub(url: str) -> object:
    github = _import("github")
    client = github.Github(auth=github.Auth.Token(SECRET), base_url=url, retry=None, timeout=2)
    return client.get_repo("ann/shop", lazy=True).create_issue("hello")


def jira(url: str) -> object:
    options = {"token_auth": SECRET, "get_server_info": False, "max_retries": 0, "timeout": 2}
    return _import("jira").JIRA(url, **options).add_comment("SHOP-1", "hello")


def notion(url: str) -> object:
    notion_client = _import("notion_client")
    client = notion_client.Client(auth=SECRET, base_url=url, timeout_ms=2000)
    return client.pages.create(parent={"database_id": "1"}, properties={})


def slack(url: str) -> object:
    client = _import("slack_sdk").WebClient(SECRET, base_url=f"{url}/api/", retry_handlers=[], timeout=2)
    return client.chat_postMessage(channel="C1", text="hello")


def hubspot(url: str) -> object:
    client = _import("hubspot").HubSpot(access_token=SECRET)
    client.config["host"] = url
    contact = _import("hubspot.crm.contacts").SimplePublicObjectInputForCreate(properties={"email": "ann@shop.example"})
    return client.crm.contacts.basic_api.create(simple_public_object_input_for_create=contact)


def shopify(url: str) -> object:
    library = _import("shopify")
    library.ShopifyResource.set_site(url)
    library.ShopifyResource.set_timeout(2)
    product = library.Product({"title": "hello"})
    product.save()
    return product.errors.full_messages()


def google(url: str) -> object:
    order = {"id": "Order", "type": "object", "properties": {"id": {"type": "string"}}}
    insert = {"id": "shop.orders.insert", "path": "orders", "httpMethod": "POST", "parameters": {}}
    discovery = {
        **{"name": "shop", "version": "v1", "rootUrl": f"{url}/", "baseUrl": f"{url}/"},
        **{"servicePath": "", "batchPath": "batch", "schemas": {"Order": order}},
        "resources": {"orders": {"methods": {"insert": {**insert, "request": {"$ref": "Order"}}}}},
    }
    http = _import("httplib2").Http(timeout=2)
    service = _import("googleapiclient.discovery").build_from_document(discovery, http=http)
    return service.orders().insert(body={"id": "1"}).execute()


def elasticsearch(url: str) -> object:
    client = _import("elasticsearch").Elasticsearch(url, max_retries=0, request_timeout=2)
    return client.index(index="orders", document={"id": 1})


def qdrant(url: str) -> object:
    library = _import("qdrant_client")
    client = library.QdrantClient(url=url, check_compatibility=False, timeout=2)
    point = library.models.PointStruct(id=1, vector=[0.1, 0.2])
    return client.upsert("orders", [point])


def kubernetes(url: str) -> object:
    library = _import("kubernetes.client")
    configuration = library.Configuration(host=url)
    configuration.retries = False
    api = library.CoreV1Api(library.ApiClient(configuration))
    body = library.V1ConfigMap(metadata=library.V1ObjectMeta(name="orders"))
    return api.create_namespaced_config_map("default", body, _request_timeout=2)


def azure(url: str) -> object:
    library = _import("azure.core")
    policies = _import("azure.core.pipeline.policies")
    rest = _import("azure.core.rest")
    client = library.PipelineClient(url, policies=[policies.RetryPolicy(retry_total=0)])
    response = client.send_request(rest.HttpRequest("POST", f"{url}/orders", json={"id": 1}), connection_timeout=2)
    exceptions = _import("azure.core.exceptions")
    errors = {401: exceptions.ClientAuthenticationError, 404: exceptions.ResourceNotFoundError}
    exceptions.map_error(response.status_code, response, {**errors, 409: exceptions.ResourceExistsError})
    response.raise_for_status()
    return response


def stripe(url: str) -> object:
    client = _import("stripe").StripeClient(SECRET, base_addresses={"api": url}, max_network_retries=0)
    return client.v1.charges.create({"amount": 500, "currency": "eur"})


def docker(url: str) -> object:
    client = _import("docker").DockerClient(base_url=url.replace("http", "tcp"), version="1.45", timeout=2)
    return client.volumes.create("orders")


def gitlab(url: str) -> object:
    client = _import("gitlab").Gitlab(url, private_token=SECRET, timeout=2)
    return client.projects.create({"name": "shop"}, obey_rate_limit=False)


def atlassian(url: str) -> object:
    client = _import("atlassian").Jira(url=url, token=SECRET, timeout=2)
    return client.create_issue({"project": {"key": "SHOP"}, "summary": "hello"})


def zeep(url: str) -> object:
    wsdl = _WSDL.replace("URL", url)
    library = _import("zeep")

    class Transport(library.transports.Transport):  # type: ignore[name-defined,misc]
        def load(self, _address: str) -> bytes:
            return wsdl.encode()

    client = library.Client("shop.wsdl", transport=Transport(operation_timeout=2))
    return client.service.order("hello")


_WSDL = """<?xml version="1.0"?>
<definitions xmlns="http://schemas.xmlsoap.org/wsdl/" xmlns:soap="http://schemas.xmlsoap.org/wsdl/soap/"
 xmlns:t="urn:shop" xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:shop">
<types><xs:schema targetNamespace="urn:shop"><xs:element name="order" type="xs:string"/></xs:schema></types>
<message name="in"><part name="body" element="t:order"/></message>
<message name="out"><part name="body" element="t:order"/></message>
<portType name="shop"><operation name="order"><input message="t:in"/><output message="t:out"/></operation></portType>
<binding name="shop" type="t:shop"><soap:binding style="document" transport="http://schemas.xmlsoap.org/soap/http"/>
<operation name="order"><soap:operation soapAction="order"/><input><soap:body use="literal"/></input>
<output><soap:body use="literal"/></output></operation></binding>
<service name="shop"><port name="shop" binding="t:shop"><soap:address location="URL/soap"/></port></service>
</definitions>"""
