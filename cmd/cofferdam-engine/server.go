package main

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/temporal"
)

const (
	loopback    = "127.0.0.1"
	clusterName = "active"
	// clusterID names the one cluster there is; it must stay the same for a file.
	clusterID = "6f1c2b9e-5d0f-4c77-9b55-0c0ffe4da3e1"
	// shards are fixed when a file is made. Four keep two processors busy.
	shards = 4
)

// start brings the server up and returns the address at which it answers.
func start(s Settings) (address string, err error) {
	tls, err := newKeys(s)
	if err != nil {
		return "", err
	}
	sql, err := database(s)
	if err != nil {
		return "", err
	}
	ports, err := freePorts(len(temporal.DefaultServices))
	if err != nil {
		return "", err
	}
	cfg := configuration(sql, ports)
	hosts := map[primitives.ServiceName]static.Hosts{}
	for i, name := range temporal.DefaultServices {
		hosts[primitives.ServiceName(name)] = static.SingleLocalHost(at(ports[i]))
	}
	inner, err := temporal.NewServer(
		temporal.WithConfig(cfg),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(hosts),
		temporal.WithLogger(log.NewZapLogger(log.BuildZapLogger(log.Config{Level: "error"}))),
		// Who may come in is settled by certificates; there is nobody to tell apart.
		temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return authorization.NewNoopClaimMapper() }),
		temporal.WithTLSConfigFactory(tls),
		temporal.WithDynamicConfigClient(tuning()),
	)
	if err != nil {
		return "", fmt.Errorf("putting the engine together: %w", err)
	}
	if err := inner.Start(); err != nil {
		return "", fmt.Errorf("starting the engine: %w", err)
	}
	return at(ports[0]), nil
}

// tuning replaces defaults that are made for large clusters: with them a tiny
// workflow takes 150 ms instead of 25. Source: measured, docs/PERFORMANCE.md.
func tuning() dynamicconfig.StaticClient {
	return dynamicconfig.StaticClient{
		dynamicconfig.TransferProcessorMaxPollRPS.Key():         2000,
		dynamicconfig.TimerProcessorMaxPollRPS.Key():            2000,
		dynamicconfig.VisibilityProcessorMaxPollRPS.Key():       200,
		dynamicconfig.MatchingNumTaskqueueReadPartitions.Key():  1,
		dynamicconfig.MatchingNumTaskqueueWritePartitions.Key(): 1,
	}
}

func configuration(sql *config.SQL, ports []int) *config.Config {
	var c config.Config
	c.Global.Membership.MaxJoinDuration = 30 * time.Second
	c.Global.Membership.BroadcastAddress = loopback
	c.Persistence.DefaultStore = "file"
	c.Persistence.VisibilityStore = "file"
	c.Persistence.NumHistoryShards = shards
	c.Persistence.DataStores = map[string]config.DataStore{"file": {SQL: sql}}
	c.ClusterMetadata = &cluster.Config{
		FailoverVersionIncrement: 10, MasterClusterName: clusterName, CurrentClusterName: clusterName,
		ClusterInformation: map[string]cluster.ClusterInformation{clusterName: {
			Enabled: true, InitialFailoverVersion: 1, RPCAddress: at(ports[0]), ClusterID: clusterID,
		}},
	}
	c.DCRedirectionPolicy.Policy = "noop"
	c.Archival.History.State = "disabled"
	c.Archival.Visibility.State = "disabled"
	c.NamespaceDefaults.Archival.History.State = "disabled"
	c.NamespaceDefaults.Archival.Visibility.State = "disabled"
	c.PublicClient.HostPort = at(ports[0])
	c.Services = map[string]config.Service{}
	for i, name := range temporal.DefaultServices {
		var svc config.Service
		svc.RPC.GRPCPort = ports[i]
		svc.RPC.BindOnIP = loopback
		c.Services[name] = svc
	}
	return &c
}

func at(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

// freePorts finds ports that are free now. Another program may take one before
// the engine does; then the engine does not start, and is started again.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", at(0))
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		defer l.Close() // kept open until all are found, so that none is found twice
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
