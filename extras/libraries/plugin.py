"""What the tables of further libraries bring: what the exceptions of clouds, brokers and services mean."""

from extras import Plugin

# A new library: its rows go to the module of its wire, its package here, its distribution to the extra `libraries`, its
# classes to tests/activities/libraries/classes.json (`python -m tests.libraries`).
PLUGIN = Plugin(
    tables={
        "extras.libraries.aws": ("botocore", "boto3", "s3transfer"),
        "extras.libraries.google": ("google", "grpc"),
        "extras.libraries.services": ("stripe", "slack_sdk", "redis"),
        "extras.libraries.mongodb": ("pymongo", "bson", "gridfs"),
        "extras.libraries.kafka": ("confluent_kafka", "cimpl", "kafka", "aiokafka"),
    }
)
