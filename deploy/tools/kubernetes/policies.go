package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"github.com/spf13/cobra"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// Heartbeats come every few seconds; one that waits is enough.
const heartbeats = 10

// newPolicyCommand is kube-router's enforcement of NetworkPolicies, without its routing and its service proxy: the CNI
// and kube-proxy do those. It calls iptables and ipset.
func newPolicyCommand() *cobra.Command {
	config := options.NewKubeRouterConfig()
	command := &cobra.Command{
		Use:   "kube-router",
		Short: "Enforces NetworkPolicies on this node",
		RunE:  func(c *cobra.Command, _ []string) error { return enforce(c.Context(), config) },
	}
	config.AddFlags(command.Flags())
	return command
}

func enforce(ctx context.Context, config *options.KubeRouterConfig) error {
	access, err := clientcmd.BuildConfigFromFlags("", config.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	stop := ctx.Done()
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	tables, sets, err := netpol.NewIPTablesHandlers(config)
	if err != nil {
		return err
	}
	controller, err := netpol.NewNetworkPolicyController(
		client, config, pods, policies, namespaces, &sync.Mutex{}, tables, sets)
	if err != nil {
		return err
	}
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods: controller.PodEventHandler, namespaces: controller.NamespaceEventHandler,
		policies: controller.NetworkPolicyEventHandler,
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watching: %w", err)
		}
	}
	health := make(chan *healthcheck.ControllerHeartbeat, heartbeats)
	go func() {
		for range health { // nobody asks this program for its health; the controller must not block on it
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	go controller.Run(health, stop, &running)
	running.Wait()
	return nil
}
