"""Local servers for tests and `make run-cluster`: pinned builds, free ports, gone when their parent is."""

from deploy.services.etcd import Etcd, EtcdCluster
from deploy.services.minio import Minio
from deploy.services.versitygw import VersityGw

__all__ = ["Etcd", "EtcdCluster", "Minio", "VersityGw"]
